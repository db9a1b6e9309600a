"""How a statistic chooses its mechanism: from public declarations alone, before any data is read.

Begin with `choice`.
"""
