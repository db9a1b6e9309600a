"""What a command or an embedding program calls: wiring, running, live series, budget view, ledger check."""
