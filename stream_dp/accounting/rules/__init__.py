"""One file per composition rule; each checks its side conditions and refuses where one fails."""
