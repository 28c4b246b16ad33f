"""The plain graph rewritten for the cores: local sizes, and collectives where a reader wants a value otherwise."""
