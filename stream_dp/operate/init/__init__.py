"""A first pipeline file from a sample of records: what `stream-dp init` does."""
