"""TensorFlow's and other C++ code's log on stderr, held back unless it is asked for."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from tpugraph.support.errors import TpuGraphError

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def import_tensorflow() -> None:
    """Import TensorFlow, without what it logs about the machine where TF_CPP_MIN_LOG_LEVEL is 1, 2 or 3.

    It writes these lines at any level. All of it is printed where the import fails.
    """
    hold = os.environ.get(LOG_LEVEL, "0") in ("1", "2", "3") and "tensorflow" not in sys.modules
    with stderr_held_back() if hold else contextlib.nullcontext():
        import tensorflow  # noqa: F401


@contextlib.contextmanager
def stderr_held_back() -> Iterator[None]:
    """Hold back what C++ code writes to file descriptor 2; replay it when the body fails unexpectedly."""
    sys.stderr.flush()
    try:
        original = os.dup(2)
    except OSError:  # stderr is closed
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except (KeyboardInterrupt, TpuGraphError):  # the one is none of its doing, the other says what failed
            raise
        except BaseException:
            held.seek(0)
            os.write(original, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
