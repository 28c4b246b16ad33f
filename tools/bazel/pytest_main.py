"""Runs pytest on the files named as arguments, for Bazel's py_test."""

import os
import sys

import pytest

if __name__ == "__main__":
    report = os.environ.get("XML_OUTPUT_FILE")
    status = pytest.main(["-p", "no:cacheprovider", *([f"--junitxml={report}"] if report else []), *sys.argv[1:]])
    sys.exit(
        0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else int(status)
    )  # -m leaves out every test of some files
