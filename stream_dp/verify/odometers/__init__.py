"""Odometers: upper bounds on the privacy loss so far.

For continual mechanisms that run at the same time: `accounting.truncated_odometer`, under a filter that
`filters.concurrent` lists as proven; and `concurrent_loss`, a bound at all times, where all parts are pure. For
mechanisms one after the other, each answered before the next is chosen: also `odometer` with the filter, mixture
and stitched `boundaries` ([WRRW] Thm 3), which bound the privacy loss at all times at once. These boundaries need
pDP, which post-processing does not preserve, so [HSTV]'s reduction to randomized response does not apply to them.
"""
