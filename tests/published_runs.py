"""Runs the programs of tests/published by the runner, each in a process of its own, from one that has everything loaded.

python tests/published_runs.py FOLDER ORDERS.json: each order is the words behind ``python -m tpugraph.compat``; what the
program printed goes to FOLDER/N.out and FOLDER/N.err, and its exit code to FOLDER/N.code.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def run_one(words: list[str], place: Path) -> None:
    """In a child: everything that is printed goes to files."""
    from tpugraph.compat.runner import main

    for number, end in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(place.with_suffix(end), os.O_WRONLY | os.O_CREAT), number)
    try:
        code = main(words)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    place.with_suffix(".code").write_text(str(code))
    os._exit(0)


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow  # noqa: F401
    import tf_slim  # noqa: F401

    import tpugraph.runtime.session
    import tpugraph.testing  # noqa: F401

    for number, words in enumerate(json.loads(Path(sys.argv[2]).read_text())):
        child = os.fork()
        if child == 0:
            run_one(words, folder / str(number))
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
