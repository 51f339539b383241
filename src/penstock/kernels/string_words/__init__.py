"""Read eight bytes of each of many strings, as numbers that compare like the bytes."""
