"""Fault tests, and the independent checker that judges what a run has left behind."""
