"""Adapters for Apache Kafka: they implement the engine's ports; every name of the client library stays here."""
