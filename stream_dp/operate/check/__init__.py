"""Checks on a sample whether records fit a pipeline, before any budget is spent."""
