"""The plain graph with another batch: what follows the batch in it is scaled, and what is read into a constant is listed."""

from tpugraph.rebatch.rebatching import Rebatched, is_open, rebatch

__all__ = ["Rebatched", "is_open", "rebatch"]
