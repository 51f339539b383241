"""Assign train nodes to parts together with the nodes that their batches read."""
