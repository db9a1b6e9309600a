"""The source topic in whole record batches: which record lies in which tick (docs/topic_reading.md). Begin with
`source`.
"""
