"""The layers of tpugraph, lowest first: a module imports only from its own layer and those before it.

The one place that says so: the root BUILD makes a target of each layer, and tests/test_layers.py reads this table.
"""

LAYERS = [
    ("errors", ["tpugraph/errors.py", "tpugraph/files.py"]),
    ("facts", ["tpugraph/ops/**/*.py", "tpugraph/attrs.py"]),
    ("ir", ["tpugraph/nodes.py", "tpugraph/links.py", "tpugraph/ir.py"]),
    ("text", ["tpugraph/text.py"]),
    ("graphs", [
        "tpugraph/session_config.py",
        "tpugraph/graphdef.py",
        "tpugraph/function_library.py",
        "tpugraph/imported.py",
        "tpugraph/shapes.py",
        "tpugraph/questions.py",
        "tpugraph/bounds.py",
        "tpugraph/flow.py",
        "tpugraph/analysis/__init__.py",
        "tpugraph/analysis/dataflow.py",
        "tpugraph/loops.py",
        "tpugraph/sides.py",
        "tpugraph/scopes.py",
        "tpugraph/branches.py",
        "tpugraph/functional.py",
        "tpugraph/inlining.py",
        "tpugraph/lowering.py",
        "tpugraph/optionals.py",
        "tpugraph/loop_shapes.py",
        "tpugraph/carried_shapes.py",
        "tpugraph/stacks.py",
        "tpugraph/trips.py",
        "tpugraph/known_values.py",
    ]),
    ("meaning", [
        "tpugraph/findings.py",
        "tpugraph/batched_input.py",
        "tpugraph/state.py",
        "tpugraph/write_order.py",
        "tpugraph/races.py",
        "tpugraph/losses.py",
        "tpugraph/train_ops.py",
        "tpugraph/roles.py",
        "tpugraph/invariants.py",
        "tpugraph/analysis/rules.py",
        "tpugraph/analysis/sizes.py",
        "tpugraph/analysis/signatures.py",
        "tpugraph/analysis/placements.py",
        "tpugraph/analysis/dimensions.py",
        "tpugraph/analysis/dimension_rules/**/*.py",
        "tpugraph/analysis/evidence/**/*.py",
        "tpugraph/analysis/placing.py",
        "tpugraph/analysis/placement_rules/**/*.py",
        "tpugraph/analysis/because.py",
        "tpugraph/collectives.py",
        "tpugraph/one_row.py",
        "tpugraph/dense_steps.py",
        "tpugraph/partitioning/**/*.py",
        "tpugraph/host_rows.py",
        "tpugraph/resizing.py",
        "tpugraph/batch_constants.py",
        "tpugraph/padded_batch.py",
        "tpugraph/own_rows.py",
        "tpugraph/tail_sizes.py",
        "tpugraph/device_cut.py",
        "tpugraph/watching.py",
        "tpugraph/outfeeding.py",
        "tpugraph/checkpoints.py",
        "tpugraph/entries.py",
        "tpugraph/evaluation_roles.py",
        "tpugraph/host_tail.py",
        "tpugraph/collecting.py",
    ]),
    ("pipeline", ["tpugraph/pipeline.py"]),
    ("passes", ["passes/**/*.py"]),
    ("compiler", ["tpugraph/compiler.py", "tpugraph/preconditions.py", "tpugraph/program.py"]),
    ("runtime", ["tpugraph/runtime/**/*.py"]),
    ("estimator", [
        "tpugraph/progress.py",
        "tpugraph/estimator/**/*.py",
        "tpugraph/plain.py",
        "tpugraph/trainings.py",
        "tpugraph/testing.py",
        "tpugraph/comparison.py",
        "tpugraph/verify.py",
    ]),
    ("command", [
        "tpugraph/__init__.py",
        "tpugraph/__main__.py",
        "tpugraph/cli.py",
        "tpugraph/commands/**/*.py",
    ]),
]

def layers():
    """Makes a py_library of each layer, and a test that imports its modules with nothing above them in sight."""
    below = []
    for name, patterns in LAYERS:
        srcs = native.glob(patterns, allow_empty = True)
        native.py_library(name = name, srcs = srcs, imports = ["."], deps = below, visibility = ["//visibility:public"])
        if srcs:
            native.py_test(
                name = name + "_layer_test",
                tags = ["quick"],
                srcs = ["//tools/bazel:check_layer.py"],
                main = "//tools/bazel:check_layer.py",
                args = srcs,
                deps = [":" + name],
            )
        below = [":" + name]

def pytest_suites(deps, data, quick):
    """Makes a py_test of each tests/test_*.py.

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
