"""Runs pytest on the files named as arguments, for Bazel's py_test."""

import os
import sys

import pytest


class Deselected:
    """Counts the tests that -m or -k leaves out."""

    count = 0

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Called by pytest."""
        self.count += len(items)


def main(args: list[str]) -> int:
    """Runs pytest; the exit status."""
    deselected = Deselected()
    report = os.environ.get("XML_OUTPUT_FILE")
    options = ["-p", "no:cacheprovider", *([f"--junitxml={report}"] if report else [])]
    status = pytest.main([*options, *args], plugins=[deselected])
    # A file whose every test is left out is a success, a file without tests is not.
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and deselected.count:
        return 0
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
