"""One hop of layer-wise sampling over one edge type: a number of new nodes for all lists together."""
