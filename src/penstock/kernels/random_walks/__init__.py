"""Random walks over neighbour lists, all walks step by step together, and the nodes that they visit most."""
