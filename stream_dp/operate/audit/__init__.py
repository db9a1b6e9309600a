"""Examines a journal: ledger, dead letters, trace against the theory. Begin with `journal_access`."""
