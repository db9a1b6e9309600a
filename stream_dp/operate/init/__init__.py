"""A first pipeline file from a sample of records: the work of `stream-dp init`."""
