"""What the commands do, without printing: running, feeding, watching, asking, examining.

It is the one place that picks adapters.
"""
