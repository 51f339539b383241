"""Edge list -> in-neighbour lists, by counting."""
