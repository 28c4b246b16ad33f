"""Iris (2 x 10 DNN, Adagrad) on 8 emulated cores against the plain graph at the same global batch.

python benchmarks/iris_steps.py [--steps 2000] [--repeats 7]
"""

from __future__ import annotations

import argparse

from _steps import compare


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    return compare("iris_dnn", 32, loop=500, steps=options.steps, repeats=options.repeats, bound=4.5)


if __name__ == "__main__":
    raise SystemExit(main())
