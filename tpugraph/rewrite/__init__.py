"""The partitioned graph, made of the plain one: sizes of a core's own rows, and collectives where a reader wants a value otherwise."""
