"""Eight bytes of each of many strings, as numbers that compare as the bytes do."""
