"""The Python face: a budget and the mechanisms it pays for, and a pipeline inside of one's own program."""
