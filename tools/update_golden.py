"""Writes the golden files of the passes anew: run it, then review the difference before committing it.

python tools/update_golden.py                       # all
python tools/update_golden.py cross_replica_sum     # tests/test_pass_cross_replica_sum.py only
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(names: list[str]) -> int:
    """Runs the tests of the passes with the comparison turned off; the exit status."""
    patterns = [f"test_pass_{name.replace('-', '_')}.py" for name in names] or ["test_pass_*.py"]
    files = sorted(str(path) for pattern in patterns for path in (ROOT / "tests").glob(pattern))
    if not files:
        print(f"no test of a pass matches {', '.join(patterns)}", file=sys.stderr)
        return 1
    environment = {**os.environ, "TPUGRAPH_UPDATE_GOLDEN": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-k", "golden", *files]
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    subprocess.run(["git", "--no-pager", "diff", "--stat", "tests/golden"], cwd=ROOT, check=False)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
