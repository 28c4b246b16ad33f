"""Tables sharded by rows over the cores: variables that a step reads and writes only by row index."""
