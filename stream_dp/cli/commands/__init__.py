"""One file per command: options and printing. What a command does is in `operate`."""
