"""Other people's frameworks, each in a folder of its own that is loaded on its own."""
