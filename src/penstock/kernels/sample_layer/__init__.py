"""One hop of layer-wise sampling over one edge type: so many nodes for all lists together."""
