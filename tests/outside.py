"""Programs from outside Python that some tests need, and say so: ``@pytest.mark.needs_program("bash")``."""

import os
import shutil

import pytest


def program(*names: str) -> str:
    """The first of some programs that is on PATH; without one the test is skipped, or fails where ``TPUGRAPH_ALL_TESTS=1``."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        others = f", or have {' or '.join(names[1:])} on PATH" if names[1:] else ""
        end = pytest.fail if os.environ.get("TPUGRAPH_ALL_TESTS") == "1" else pytest.skip
        end(f"no {names[0]}: apt-get install {names[0]}{others}")
    return found
