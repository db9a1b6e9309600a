"""What a composition costs: rules, amounts and the ledger. This package sees guarantees, never mechanisms."""
