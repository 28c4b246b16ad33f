"""Edits of the step that serve its partition: lookups, tables, row updates, batch norm, and the nodes that cores combine with."""
