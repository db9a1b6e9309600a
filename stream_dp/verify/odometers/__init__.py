"""Odometers: upper bounds on what was lost so far.

While continual mechanisms run at once: `accounting.truncated_odometer`, under a filter that `filters.concurrent` lists
as proven; and `concurrent_loss`, a bound at all times, where all parts are pure. One after the other, each answered
before the next is chosen: `odometer` with the filter, mixture and stitched `boundaries` ([WRRW] Thm 3) too, which
bound the privacy loss at all times at once. They need pDP, which post-processing does not keep, so [HSTV]'s reduction
to randomized response does not carry them over.
"""
