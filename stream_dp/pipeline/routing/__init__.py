"""From the columns of a batch to tick rows: which record counts in which entry, and the guard for users.

Begin with `router`.
"""
