"""From a pipeline file to what an engine runs: read, checked, priced, built, explained.

Touches no data. Begin with `builder`.
"""
