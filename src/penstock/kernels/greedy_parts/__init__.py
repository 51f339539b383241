"""Linear deterministic greedy: each node goes to the part that holds most of its neighbours and has room."""
