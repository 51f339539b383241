"""How likely nodes are to be sampled: one hop over one edge type."""
