"""From a pipeline file to an engine's configuration: read, checked, priced, built, explained.

Touches no data. Begin with `builder`.
"""
