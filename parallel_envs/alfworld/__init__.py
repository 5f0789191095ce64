"""ALFWorld: the official games, n replicas on one loaded planner library."""
