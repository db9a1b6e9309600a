"""Series that analysts create while the engine runs: their messages, and what a pipeline makes of a definition."""
