"""A pipeline file, run until it is stopped: attempts, riding out, standby. Begin with `run_pipeline`."""
