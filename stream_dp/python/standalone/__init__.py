"""Statistics in any program, on any events: a budget, and the series that it pays for.

`Budget` in `budget.py` is where to begin. A series is the statistic of a pipeline file on the same way of events into
rows (`series.py`), so nothing here knows what a statistic does. What is charged is charged before it exists, and
nothing is given back: series of a program share no clock, so no tick of one is known to lie behind a tick of another.
This folder opens no file and no socket.
"""
