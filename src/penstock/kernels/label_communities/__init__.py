"""Label propagation: each node joins the community that most of its neighbours are in."""
