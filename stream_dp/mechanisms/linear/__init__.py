"""Counters and sums, so far and over sliding windows: tree noise, or correlated Gaussian noise, is added to totals.

Begin with `tree` (the noise), then `counter`; `noisy_forest` is the noise of windows. No branch depends on data here.
"""
