"""Embedding lookups in the form that a TPU takes: id lists padded to a fixed length, partitioned tables read whole."""
