"""From batches to closed ticks: which records count, in which tick, and where a tick's cut lies.

Begin with `tick_assembler`.
"""
