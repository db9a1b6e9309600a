"""What a composition costs: rules, amounts and the ledger. Sees guarantees, never mechanisms."""
