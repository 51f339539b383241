"""64-bit hashes of the user's node ids."""
