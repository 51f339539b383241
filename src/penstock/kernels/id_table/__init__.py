"""Look-ups in a table of hashes grouped by their leading bits."""
