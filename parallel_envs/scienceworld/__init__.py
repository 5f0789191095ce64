"""ScienceWorld: all tasks and splits, n replicas in one Java server."""
