"""What crosses from one part of a graph to another: edges, and the nodes that they come from."""
