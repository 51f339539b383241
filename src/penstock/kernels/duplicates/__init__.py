"""Which entries of neighbour lists repeat an earlier one."""
