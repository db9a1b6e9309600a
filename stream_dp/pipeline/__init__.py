"""From a pipeline file to mechanisms, derivation, error bands and a router for its records."""
