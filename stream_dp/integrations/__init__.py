"""Integrations of other frameworks, each in a folder that is imported separately."""
