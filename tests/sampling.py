"""Which of many alike cases the suite runs: the gate runs all of them."""

from __future__ import annotations

import os

ALL = os.environ.get("TPUGRAPH_TEST_PROGRAMS") == "all"
"""Whether all are run; ``.ci/run`` says so for the files that ask."""
