"""What talks to an engine that runs elsewhere."""
