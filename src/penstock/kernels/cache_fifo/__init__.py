"""First in, first out, over a batch of ids."""
