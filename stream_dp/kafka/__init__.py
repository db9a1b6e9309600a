"""Adapters for Apache Kafka.

They implement the engine's ports and nothing else; every name of the client library stays here.
"""
