"""Counters and sums: tree noise, or correlated Gaussian noise, is added to the totals so far.

Begin with `tree` (the noise), then `counter`. No branch depends on data here.
"""
