"""Quantiles of a number: noisy counts in a tree over value buckets, and what is read off it.

Begin with `value_tree`.
"""
