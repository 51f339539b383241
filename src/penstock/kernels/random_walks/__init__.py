"""Random walks over neighbour lists, a step of all of them at a time, and who was visited most."""
