"""A pipeline file as a value: YAML with places, models, and every mistake at once. Begin with `spec`, then `yaml`."""
