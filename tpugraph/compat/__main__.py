"""``python -m tpugraph.compat train.py``: runs a program for TensorFlow 1.15."""

import sys

from tpugraph.compat.runner import main

if __name__ == "__main__":
    sys.exit(main())
