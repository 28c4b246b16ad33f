"""How long `python -m tpugraph --help` and `import tpugraph` take, the start of Python included.

python benchmarks/startup.py [--repeats 7]
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path

import _measure


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    os.chdir(Path(__file__).resolve().parents[1])
    commands = {
        "tpugraph --help": ["-m", "tpugraph", "--help"],
        "import tpugraph": ["-c", "import tpugraph"],
        "python alone": ["-c", "pass"],
    }
    parts = {
        name: lambda a=arguments: _measure.seconds(lambda: _measure.child(a)) for name, arguments in commands.items()
    }
    _measure.interleave(parts, 1)
    found = _measure.interleave(parts, options.repeats)
    _measure.show(found, "s")
    slower = max(statistics.median(found[name]) for name in ("tpugraph --help", "import tpugraph"))
    return _measure.verdict("start in seconds", slower, 0.3, most=True)


if __name__ == "__main__":
    raise SystemExit(main())
