"""Alerts: watches that fire when a count or a sum has about reached a threshold ([HSV] Alg. 3, re-armed).

Begin with `kinds`: every monitor there is a `WatchBlock`. The noise of a threshold is drawn anew after each crossing.
"""
