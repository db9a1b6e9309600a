"""Records sent into topics: replays with tick marks, and try-out producers."""
