"""Queries of an engine that runs elsewhere, by HTTP or Kafka: tokens, definitions, answers."""
