"""Independent oracles and attacks, written from the papers and never from the code they judge."""
