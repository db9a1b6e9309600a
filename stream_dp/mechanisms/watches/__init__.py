"""Alerts: watches that fire when a count or a sum has about reached a threshold ([HSV] Alg.

3, re-armed after each firing).

Begin with `alerts`, then `watch_block`, which every monitor is. A threshold's noise is drawn anew after each
crossing.
"""
