"""A process that takes what it is asked and never answers; without TensorFlow it is there at once."""

import time
from typing import Any


def serve(connection: Any, folder: str) -> None:
    """Stands for ``campaigns.graphs.serve``: says that it is ready, and no more."""
    connection.send(0)
    connection.recv()
    time.sleep(600)
