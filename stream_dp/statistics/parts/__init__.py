"""What several statistics share: the base of all, windows, watches, alarms, grids of values, sources of made
series.
"""
