"""Lookups in tables of embeddings as a TPU takes them: lists of any length padded, tables in pieces read as one."""
