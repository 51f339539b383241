"""Move rows of one table to places in another."""
