"""Odometers: upper bounds on the privacy loss that hold at all times at once. One file per boundary."""
