"""Live, differentially private statistics from event streams, under one stated guarantee."""

__version__ = "0.1.0"
