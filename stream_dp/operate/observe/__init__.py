"""What people and monitoring see of a run: page, operator's figures, logs of its life, traces."""
