"""The public test kit: conformance suites, taint, clocks, noise that is not private, a Kafka fixture."""
