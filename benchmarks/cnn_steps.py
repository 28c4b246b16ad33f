"""The MNIST CNN (without dropout) on 8 emulated cores against the plain graph at the same global batch.

python benchmarks/cnn_steps.py [--steps 20] [--repeats 3]
"""

from __future__ import annotations

import argparse

from _steps import compare


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    return compare("mnist_cnn_no_dropout", 64, loop=20, steps=options.steps, repeats=options.repeats, bound=1.0)


if __name__ == "__main__":
    raise SystemExit(main())
