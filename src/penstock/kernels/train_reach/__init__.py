"""Train nodes placed with what their batches read."""
