"""Random words for a range of indices, for the graph generators."""
