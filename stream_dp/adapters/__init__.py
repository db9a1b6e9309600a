"""Sources, journals and sinks: the implementations of the runtime's ports."""
