"""CLOCK (second chance) over a batch of ids."""
