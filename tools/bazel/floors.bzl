"""The floors of tpugraph, lowest first, and the rooms on each: a module imports from its own room and from floors below.

A room is a package below tpugraph, with its subpackages, or a module that stands there alone. The rooms of one floor do not
import each other. The one place that says so: the root BUILD makes a target of each floor, tests/repository/test_layers.py and
tools/make_docs.py read this table. The sources of the room passes lie at the top level, to which tpugraph/passes links.
"""

FLOORS = [
    ("foundation", ["support", "ops"]),
    ("ir", ["ir"]),
    ("analysis", ["analysis"]),
    ("spmd", ["spmd"]),
    ("meaning", ["control_flow", "roles", "rewrite", "views"]),
    ("batch", ["lookups", "tables", "rebatch"]),
    ("form", ["tpu", "xla"]),
    ("passes", ["passes"]),
    ("compiler", ["compiler"]),
    ("runtime", ["runtime"]),
    ("training", ["estimator", "testing"]),
    ("face", ["__init__.py", "export.py", "compat"]),
    ("command", ["cli", "__main__.py"]),
]

def floors():
    """Makes a py_library of each floor, and a test that imports its modules with nothing above them in sight."""
    below = []
    for name, rooms in FLOORS:
        patterns = ["tpugraph/" + (room if room.endswith(".py") else room + "/**/*.py") for room in rooms]
        srcs = native.glob(patterns, allow_empty = True)
        native.py_library(name = name, srcs = srcs, imports = ["."], deps = below, visibility = ["//visibility:public"])
        if srcs:
            native.py_test(
                name = name + "_floor_test",
                tags = ["quick"],
                srcs = ["//tools/bazel:check_floor.py"],
                main = "//tools/bazel:check_floor.py",
                args = srcs,
                deps = [":" + name],
            )
        below = [":" + name]

def pytest_suites(deps, data, quick):
    """Makes a py_test of each tests/**/test_*.py.

    Args:
      deps: what the tests import.
      data: what the tests read.
      quick: names of those that get the tag quick: the gate runs these, after every test has run under pytest alone.
    """
    for src in native.glob(["tests/**/test_*.py"], allow_empty = True):
        name = src[len("tests/"):-len(".py")].replace("/", "_")
        native.py_test(
            name = name,
            tags = ["quick"] if name in quick else [],
            timeout = "long",
            srcs = ["//tools/bazel:pytest_main.py", src],
            main = "//tools/bazel:pytest_main.py",
            args = [src],
            data = data,
            deps = deps,
        )
