"""Counters and sums: noise of a tree, or correlated Gaussian noise, added to what was counted so far.

Begin with `tree` (the noise), then `counter`. No branch depends on data here.
"""
