"""Counts and sums over sliding windows: a forest of short trees, and the count so far beside it.

Begin with `noisy_forest`, then `window_forest`.
"""
