"""Gives a plain graph another batch size: sizes that follow the batch are scaled, and every guess about a constant is listed."""

from tpugraph.rebatch.rebatching import Rebatched, is_open, rebatch

__all__ = ["Rebatched", "is_open", "rebatch"]
