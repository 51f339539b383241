"""What batches of links need beside samples: links that are not there, and samples without the links that are asked about."""
