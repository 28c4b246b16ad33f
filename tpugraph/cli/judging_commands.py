"""The commands that say what a graph is and whether a TPU takes it, as data. Needs no TensorFlow."""

from __future__ import annotations

from tpugraph.cli.declarations import Command, Flag
from tpugraph.cli.shared_flags import COMMON, CONVERSION, REBIND

INSPECT = Command(
    "inspect",
    True,
    "show what a graph holds and what tpugraph makes of it",
    "Prints kind, size, ops, the roles that were found with the reason of each, what goes to the host and what to the "
    "device. Nothing is written.",
    ("tpugraph inspect model_dir", "tpugraph inspect model.pb --why=dense/kernel"),
    (
        Flag(
            "why",
            "string",
            None,
            "tell all that is known about one node, and why its value lives where it does",
            shown="NODE",
        ),
        Flag("why_all", "boolean", False, "with --why: follow every operand that decided, and leave no line out"),
        *(flag for flag in CONVERSION if not flag.name.startswith("dump_")),
        *COMMON,
    ),
)
CHECK = Command(
    "check",
    True,
    "say whether a graph can run on a TPU, and which node stops it",
    "MODEL is a converted graph, or a plain one, which is then converted first with the same flags as `tpugraph "
    "convert`. Looks at each node that would run on the device: XLA's kernels, operands that must be constants, loops, open "
    "shapes; then TensorFlow lowers the step for XLA, whose word counts. Needs neither a TPU nor libtpu. The exit code is 0 "
    "where the graph can run, else 1.",
    ("tpugraph check model.pb", "tpugraph check model_dir --num_replicas=8 --fail_under=99.5 --json"),
    (
        Flag(
            "fail_under",
            "float",
            None,
            "exit code 0 as well where the conversion works and at least this share of the device's nodes can compile",
            shown="PERCENT",
        ),
        *CONVERSION,
        *COMMON,
    ),
)
COMPILE = Command(
    "compile",
    True,
    "compile a graph with the real TPU compiler, without a TPU",
    "MODEL is a converted graph, or a plain one, which is then converted first with the same flags as `tpugraph "
    "convert`. Says whether it compiles, or the compiler's complaint with the node; memory per core, flops, traffic. Needs "
    "jax and libtpu: python -m pip install 'tpugraph[tpu]'. With --output it writes a bundle that jax alone can train, and "
    "asks the compiler only where --topology is given too.",
    (
        "tpugraph compile model.pb --topology=v5e:2x4",
        "tpugraph compile model.pb --topology=v6e:2x4 --largest_batch",
        "tpugraph compile model.pb -o step.tpugraph --checkpoint=model_dir",
    ),
    (
        Flag(
            "output",
            "string",
            None,
            "write the step, its variables and a manifest, for tpugraph.runtime.pjrt",
            short="o",
            shown="FILE.tpugraph",
        ),
        Flag(
            "checkpoint",
            "string",
            None,
            "of --output: the variables' values; their initialisers if not given",
            shown="PREFIX",
        ),
        REBIND,
        Flag("topology", "string", "v5e:2x4", "which TPU to compile for", shown="NAME"),
        Flag("largest_batch", "boolean", False, "search the largest batch of a core that fits its memory"),
        Flag("topologies", "boolean", False, "list the known topologies and stop"),
        *CONVERSION,
        *COMMON,
    ),
)
VIEW = Command(
    "view",
    True,
    "show what a conversion did, as one page for a browser",
    "The page needs no server and no network: the graph by scopes, what runs on host and device, what goes between them, "
    "where each value lives and why, what each pass did, and what stops the graph on a TPU. MODEL is a plain graph, or a "
    "converted one, which is shown as it is.",
    (
        "tpugraph view model_dir -o page.html",
        "tpugraph view model.pb --format=model_explorer -o model.json",
    ),
    (
        Flag(
            "output",
            "string",
            None,
            "where to write; MODEL's name with the ending of the format if not given",
            short="o",
            shown="FILE",
        ),
        Flag(
            "format",
            "enum",
            "html",
            "a page, or what Google's Model Explorer, Graphviz or a program of your own reads",
            ("html", "model_explorer", "dot", "json"),
        ),
        *CONVERSION,
        *COMMON,
    ),
)
REPORT = Command(
    "report",
    True,
    "write the page that says whether to rent a TPU, and which",
    "Says whether the graph can run on a TPU and what must change, then asks the TPU compiler of each topology: memory of a "
    "core with the largest tensors, the least time of a step and what bounds it, traffic. The same as JSON lies beside the "
    "page. Needs no TPU; the compilers come with python -m pip install 'tpugraph[tpu]'. The exit code is 1 where it cannot run.",
    (
        "tpugraph report model_dir -o report.html",
        "tpugraph report model.pb --topology=v5e:2x4,v6e:2x4 --largest_batch",
    ),
    (
        Flag(
            "output",
            "string",
            None,
            "where to write; MODEL's name with .report.html if not given",
            short="o",
            shown="FILE.html",
        ),
        Flag(
            "topology",
            "list",
            ("v3:2x2", "v4", "v5e:2x4", "v5p", "v6e:2x4"),
            "which TPUs to ask; a generation alone is its smallest size with a core for each replica",
            shown="NAME,...",
        ),
        Flag(
            "largest_batch",
            "boolean",
            False,
            "search the largest batch of a core on each, which compiles it several times",
        ),
        *CONVERSION,
        *COMMON,
    ),
)
