"""``python -m tpugraph``: the same as the ``tpugraph`` command."""

import sys

from tpugraph.cli import main

if __name__ == "__main__":
    sys.exit(main())
