"""The commands that compare graphs and find faults, as data. Needs no TensorFlow."""

from __future__ import annotations

from tpugraph.cli.declarations import Command, Flag
from tpugraph.cli.shared_flags import (
    CHECKPOINT,
    COMMON,
    CORES,
    EXACTNESS,
    FINDING,
    GLOBAL_BATCH,
    PIPELINE,
    REBIND,
    TOLERANCE,
    TRAINED,
    VARYING,
)

VERIFY = Command(
    "verify",
    True,
    "compare the converted graph with the plain one on your own data",
    "Trains the plain graph K steps, run by TensorFlow at its own batch, and the cores, which share each of its batches, one by one "
    "and as one loop, from the same weights. Compares every loss and every variable of every step, and says which variable differs "
    "most and by how much. The exit code is 1 where something differs by more than the tolerance.",
    ("tpugraph verify model.pb --steps=4 --checkpoint=model.ckpt-0", "tpugraph verify model.pb --grid=page.html"),
    (
        Flag("steps", "integer", 4, "number of steps to compare", shown="K", lowest=1),
        CHECKPOINT,
        Flag(
            "tolerance",
            "float",
            1e-4,
            "largest difference allowed, relative to the largest element of a variable",
            shown="X",
        ),
        Flag(
            "grid",
            "string",
            None,
            "how far each variable is apart after each step: text prints it, a name ending in .html is a page to write",
            shown="text|FILE.html",
        ),
        Flag("dry_run", "boolean", False, "convert, say what would be run and on which files, and run nothing"),
        REBIND,
        CORES,
        GLOBAL_BATCH,
        *FINDING,
        VARYING,
        *EXACTNESS,
        *PIPELINE,
        *COMMON,
    ),
)
COMPARE = Command(
    "compare",
    True,
    "find the first tensor that differs between the plain and the converted graph",
    "Trains a few steps on each engine and compares the tensors of the step, its loss and its variables. The cores share each batch "
    "of the plain graph: rows of the cores are put together, parts of a sum are added up. Names the first tensor in topological "
    "order that differs, in which step, on which core, and where it lives. The exit code is 1 where one does.",
    (
        "tpugraph compare model.pb --checkpoint=model.ckpt-0",
        "tpugraph compare model.pb --engines=plain,emulator,pjrt --tensors='dense.*'",
    ),
    (
        Flag(
            "engines",
            "list",
            ("plain", "emulator"),
            "what is compared with the first: plain, emulator (cores of this machine), pjrt (the loop compiled)",
            shown="NAME,...",
        ),
        Flag("tensors", "string", "all", "all, or a regular expression that names match", shown="REGEX"),
        Flag("steps", "integer", 1, "number of steps to compare", shown="K", lowest=1),
        CHECKPOINT,
        TOLERANCE,
        REBIND,
        *TRAINED,
        *COMMON,
    ),
)
REDUCE = Command(
    "reduce",
    True,
    "find the smallest graph that still shows a fault, and write a test of it",
    "Takes the flags of the command that showed the fault. Cuts the graph down, whole loops and branches at a time, with recorded "
    "values where it was cut, for as long as the fault shows. Each try runs in a child process. --when says what the fault is: "
    "differs (trains otherwise than the plain graph), refused:CODE (CODE is a cause of `tpugraph check` such as kernel, a kind of "
    "error, a pass, or words of the refusal), crashes, or xla:TEXT (the TPU compiler complains in such words).",
    (
        "tpugraph reduce model.pb --when=differs --passes=prune,...,partition,my.module:MyPass,...",
        "tpugraph reduce model.pb --when=refused:kernel -o small.pb",
    ),
    (
        Flag("when", "string", "differs", "the fault", shown="FAULT"),
        Flag(
            "output",
            "string",
            None,
            "where to write the graph; the test goes beside it. MODEL's name with _reduced.pb, in this folder, if not given",
            short="o",
            shown="OUT.pb",
        ),
        Flag("steps", "integer", 1, "steps of a try that trains", shown="K", lowest=1),
        CHECKPOINT,
        TOLERANCE,
        Flag("topology", "string", "v5e:2x4", "of xla:TEXT: which TPU to compile for", shown="NAME"),
        Flag("seconds", "float", 300.0, "how long the search may take", shown="SECONDS"),
        Flag(
            "try_seconds", "float", 120.0, "how long a try may take; one that takes longer has crashed", shown="SECONDS"
        ),
        REBIND,
        *TRAINED,
        *COMMON,
    ),
)
DIFF = Command(
    "diff",
    True,
    "say how two graphs differ, by what they mean",
    "Nodes are matched by name, and where names differ by what they read and who reads them. The order of nodes, shapes that "
    "were inferred, and attributes that have their default value mean nothing. The exit code is 1 where the graphs differ.",
    ("tpugraph diff model.pb model_tpu.pb", "tpugraph diff old/model.ckpt-0.meta new/model.ckpt-0.meta --all"),
    (
        Flag("all", "boolean", False, "list all nodes that differ, not the first 20 of each kind"),
        *COMMON,
    ),
    other="OTHER",
)
