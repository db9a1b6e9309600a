"""Whether records fit a pipeline, found out on a sample before any budget is spent."""
