"""S3-FIFO over a batch of ids."""
