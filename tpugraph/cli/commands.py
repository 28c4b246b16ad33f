"""The commands and their flags, as data. Needs no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        name: with underscores; dashes are accepted too.
        kind: ``string``, ``integer``, ``float``, ``boolean``, ``enum``, ``list`` (comma-separated) or ``repeated``.
        default: its value when it is not given.
        help: one sentence.
        values: what an ``enum`` may be.
        short: a one-letter name.
        shown: how the value is written in the help.
        lowest: the smallest value of a number.
    """

    name: str
    kind: str
    default: Any
    help: str
    values: tuple[str, ...] = ()
    short: str | None = None
    shown: str = ""
    lowest: int | None = None


@dataclass(frozen=True)
class Command:
    """One command: what it takes and how it is explained.

    Attributes:
        name: its name, which is that of its module too unless ``module`` names another.
        takes_model: whether it takes an argument.
        summary: what it does, in a line.
        text: what it does, at length.
        examples: command lines, the simplest one first.
        flags: its flags.
        other: what a second argument is called; "" where it takes none.
        model: what the argument is called.
        tensorflow: whether it needs TensorFlow.
        module: the module below ``tpugraph.cli`` where that is not the name.
    """

    name: str
    takes_model: bool
    summary: str
    text: str
    examples: tuple[str, ...]
    flags: tuple[Flag, ...]
    other: str = ""
    model: str = "MODEL"
    tensorflow: bool = True
    module: str = ""


# --------------------------------------------------------------------------- flags of several commands

# fmt: off
COMMON = (
    Flag("json", "boolean", False, "print one machine-readable object on stdout, everything else on stderr"),
    Flag("traceback", "boolean", False, "print Python's traceback with an error"),
    Flag("help", "boolean", False, "print this help", short="h"),
)
"""The flags of every command."""

FINDING = (
    Flag("train_op", "string", None, "the train op, or several with commas between; found by structure if not given", shown="NODE"),
    Flag("loss", "string", None, "the loss; found by structure if not given", shown="TENSOR"),
)
"""What the roles are taken for."""

CORES = Flag("num_replicas", "integer", None,
     "number of cores, which divides the batch; 8 if not given, or the largest of 4, 2 and 1 that does", shown="N", lowest=1)
LOOP = Flag("iterations_per_loop", "integer", 100, "steps per Session.run", shown="N", lowest=1)
GLOBAL_BATCH = Flag("global_batch", "integer", 0,
     "rows that a step reads, where that is another number than the plain graph's; see `tpugraph rebatch`", shown="G", lowest=0)
VARYING = Flag("varying_updates", "enum", "mean",
     "what is written where the cores differ, as batch statistics do with --batch_norm=per_core",
     ("mean", "replica0", "error"))
EXACTNESS = (
    Flag("batch_norm", "enum", "global",
         "global: statistics of the whole batch, as the plain graph has them; per_core: each core its own, without collectives",
         ("global", "per_core")),
    Flag("step_order", "enum", "reads_first",
         "what comes first where the graph puts a read and a write of a variable, such as the step counter, in no order",
         ("reads_first", "writes_first")),
    Flag("random", "enum", "per_core",
         "per_core: each core draws its own rows, as a TPU does; plain: the rows of what the plain graph draws",
         ("per_core", "plain")),
    Flag("batch_constants", "list", (), "of --global_batch: constants that grow with the batch", shown="NODE,..."),
    Flag("literals", "list", (), "of --global_batch: constants that do not", shown="NODE,..."),
)
"""How exactly the cores do what the plain graph does."""

MODE = (
    Flag("mode", "enum", "train",
         "what the graph is for: eval and predict take the graphs that Estimator.evaluate and Estimator.predict build",
         ("train", "eval", "predict")),
    Flag("metrics", "repeated", (),
         "of --mode=eval: value tensor and update op of a metric, for each metric; found by structure if not given",
         shown="NAME=VALUE,UPDATE"),
    Flag("predictions", "repeated", (),
         "of --mode=predict: tensor of a prediction, for each prediction; found by structure if not given", shown="NAME=TENSOR"),
    Flag("signature", "string", None,
         "of --mode=predict of a SavedModel: which signature; serving_default, or the only one, if not given", shown="NAME"),
)
"""What the graph is for, and what it gives."""

PIPELINE = (
    Flag("shard_tables", "integer", 0,
         "share the rows of tables of at least so many bytes among the cores, where the step reads and writes them by rows",
         shown="BYTES", lowest=0),
    Flag("set_shape", "repeated", (), "the shape of a tensor that the graph leaves open; may be given several times",
         shown="NODE:32,4"),
    Flag("max_ids", "integer", 0,
         "the most ids that a row of a sparse column has, where no shape tells: rows are padded to so many", shown="N", lowest=0),
    Flag("passes", "string", None,
         "the pipeline, such as 'prune,my.module:MyPass,...'; `tpugraph passes` lists the default, '...' is its rest", shown="LIST"),
)
"""What the passes do."""

CONVERSION = (
    *MODE,
    CORES,
    LOOP,
    GLOBAL_BATCH,
    *FINDING,
    VARYING,
    *EXACTNESS,
    *PIPELINE,
    Flag("dump_dir", "string", None, "folder for a numbered text dump after each pass", shown="DIR"),
    Flag("dump_after", "list", (), "dump after these passes only", shown="PASS,..."),
    Flag("dump_changed", "boolean", False, "print on stderr which nodes each pass changed, as they were and as they are"),
)
"""The flags that are fields of ConvertOptions."""

TRAINED = tuple(
    flag
    for flag in CONVERSION
    if flag.name not in ("mode", "metrics", "predictions", "signature") and not flag.name.startswith("dump_")
)
"""The flags of a conversion of a training graph that is not written."""

REBIND = Flag("rebind", "repeated", (), "replace a file name in the graph; may be given several times", shown="OLD=NEW")
WORKERS = Flag("workers", "list", (), "the addresses of all workers; see `tpugraph worker`", shown="HOST:PORT,...")
CHECKPOINT = Flag("checkpoint", "string", None, "start from this checkpoint: a prefix, or a folder's newest", shown="PREFIX")
TOLERANCE = Flag("tolerance", "float", 0.0001,
     "largest difference that is none, relative to the largest element of a tensor", shown="X")


# --------------------------------------------------------------------------- convert and run

CONVERT = Command(
    "convert", True, "rewrite a plain training graph into a TPU training graph",
    "MODEL is a GraphDef (.pb, .pbtxt), a MetaGraphDef (.meta), a SavedModel or an Estimator's model_dir; which one is told from "
    "its content. The output is one GraphDef that needs no side file.",
    ("tpugraph convert model_dir/model.ckpt-0.meta -o model_tpu.pb --num_replicas=8 --iterations_per_loop=100",),
    (
        Flag("output", "string", None, "where to write; MODEL's name with _tpu.pb if not given", short="o", shown="OUT.pb"),
        *CONVERSION,
        Flag("report", "string", None, "write what was found and done as JSON", shown="FILE.json"),
        Flag("dry_run", "boolean", False, "convert and print, but write nothing"),
        *COMMON,
    ),
)
REBATCH = Command(
    "rebatch", True, "write the plain graph with another batch",
    "The input reads G rows a step, and what follows the batch in the graph is scaled: sizes of what has rows, and numbers that "
    "are read as the rows, each of which is listed with the reason. The output is a plain GraphDef, for TensorFlow as much as for "
    "`tpugraph convert`, whose --global_batch=G does the same first.",
    ("tpugraph rebatch model_dir/model.ckpt-0.meta --global_batch=256 -o model_256.pb",),
    (
        Flag("output", "string", None, "where to write; MODEL's name with _G.pb if not given", short="o", shown="OUT.pb"),
        GLOBAL_BATCH,
        *FINDING[:2],
        *(flag for flag in EXACTNESS if flag.name in ("batch_constants", "literals")),
        *COMMON,
    ),
)
RUN = Command(
    "run", True, "train, evaluate or predict: on TPU devices, PJRT devices, or emulated cores of this machine",
    "MODEL is a converted graph, or a plain one, which is then converted first with the same flags as `tpugraph convert`. With "
    "--model_dir, training goes on where that folder's newest checkpoint ends. A graph of mode eval or predict takes its variables"
    " from there, runs over all its data (or --steps global batches), and gives each example once. A bundle that `tpugraph compile"
    " -o` wrote has flags of its own: `tpugraph run step.tpugraph --help`.",
    (
        "tpugraph run model_tpu.pb --steps=1000 --model_dir=out --losses=losses.jsonl",
        "tpugraph run model.pb --steps=24 --checkpoint=model.ckpt-0 --rebind=train.tfrecords=/data/train.tfrecords",
        "tpugraph run model_tpu.pb --steps=1000 --engine=pjrt --platform=gpu",
        "tpugraph run model_tpu.pb --steps=1000 --workers=10.0.0.2:8470,10.0.0.3:8470",
        "tpugraph run model_dir --mode=eval",
        "tpugraph run eval.meta --mode=eval --checkpoint=model_dir",
        "tpugraph run predict.meta --mode=predict --checkpoint=model_dir --output=predictions.jsonl",
        "tpugraph run saved_model --mode=predict --rebind=examples.tfrecord=mine.tfrecord",
    ),
    (
        Flag("steps", "integer", None, "number of steps, from where the checkpoint is", shown="N", lowest=1),
        Flag("max_steps", "integer", None, "train to this global step, so that a command can be repeated", shown="N", lowest=1),
        Flag("output", "string", None, "of mode predict: where a line of JSON per example goes; stdout if not given", short="o",
             shown="FILE.jsonl"),
        CHECKPOINT,
        Flag("model_dir", "string", None, "folder to save checkpoints in and to resume from", shown="DIR"),
        Flag("save_steps", "integer", None, "steps between checkpoints, which are saved at loop ends; 10 minutes if not given",
             shown="N", lowest=1),
        Flag("async_save", "boolean", False, "write checkpoints beside training; a step waits for the copy alone"),
        Flag("master", "string", "", "address of a TensorFlow server with TPU devices; emulated cores if empty", shown="ADDRESS"),
        WORKERS,
        Flag("engine", "enum", "emulator",
             "what trains where no TPU master does; pjrt compiles the loop for devices of jax, auto does where those are "
             "accelerators", ("emulator", "pjrt", "auto")),
        Flag("coordinator", "string", None, "of --engine=pjrt on several hosts: address of process 0", shown="HOST:PORT"),
        Flag("connect_timeout", "float", 15.0, "how long --master, --workers and --coordinator are waited for", shown="SECONDS"),
        Flag("processes", "integer", 1, "how many processes --coordinator joins", shown="N", lowest=1),
        Flag("process", "integer", 0, "the number of this process", shown="N", lowest=0),
        Flag("platform", "enum", None, "devices of --engine=pjrt; cpu makes virtual ones", ("cpu", "gpu", "tpu")),
        REBIND,
        Flag("losses", "string", None, 'write a line {"step": 1, "loss": 0.5} per step', shown="FILE.jsonl"),
        Flag("trace", "string", None, "write a timeline of the training, for ui.perfetto.dev, and say what bound it",
             shown="FILE.json"),
        *CONVERSION,
        *COMMON,
    ),
)
WORKER = Command(
    "worker", False, "serve the cores of this machine to a training on several hosts",
    "Every worker is started with the same list. `tpugraph run --workers=...`, and a TPUEstimator whose RunConfig names the "
    "workers, share the cores among them. It serves until it is ended.",
    ("tpugraph worker --workers=10.0.0.2:8470,10.0.0.3:8470 --task=0",),
    (
        WORKERS,
        Flag("task", "integer", 0, "which of them this is, from 0", shown="INDEX", lowest=0),
        *COMMON,
    ),
)


# --------------------------------------------------------------------------- say what a graph is, and whether a TPU takes it

INSPECT = Command(
    "inspect", True, "show what a graph holds and what tpugraph makes of it",
    "Prints kind, size, ops, the roles that were found with the reason of each, what goes to the host and what to the device. "
    "Nothing is written.",
    ("tpugraph inspect model_dir", "tpugraph inspect model.pb --why=dense/kernel"),
    (
        Flag("why", "string", None, "tell all that is known about one node, and why its value lives where it does", shown="NODE"),
        Flag("why_all", "boolean", False, "with --why: follow every operand that decided, and leave no line out"),
        *(flag for flag in CONVERSION if not flag.name.startswith("dump_")),
        *COMMON,
    ),
)
CHECK = Command(
    "check", True, "say whether a graph can run on a TPU, and which node stops it",
    "MODEL is a converted graph, or a plain one, which is then converted first with the same flags as `tpugraph convert`. Looks at"
    " each node that would run on the device: XLA's kernels, operands that must be constants, loops, open shapes; then TensorFlow "
    "lowers the step for XLA, whose word counts. Needs neither a TPU nor libtpu. The exit code is 0 where the graph can run, else "
    "1.",
    ("tpugraph check model.pb", "tpugraph check model_dir --num_replicas=8 --fail_under=99.5 --json"),
    (
        Flag("fail_under", "float", None,
             "exit code 0 as well where the conversion works and at least this share of the device's nodes can compile",
             shown="PERCENT"),
        *CONVERSION,
        *COMMON,
    ),
)
COMPILE = Command(
    "compile", True, "compile a graph with the real TPU compiler, without a TPU",
    "MODEL is a converted graph, or a plain one, which is then converted first with the same flags as `tpugraph convert`. Says "
    "whether it compiles, or the compiler's complaint with the node; memory per core, flops, traffic. Needs jax and libtpu: python"
    " -m pip install 'tpugraph[tpu]'. With --output it writes a bundle that jax alone can train, and asks the compiler only where "
    "--topology is given too.",
    (
        "tpugraph compile model.pb --topology=v5e:2x4",
        "tpugraph compile model.pb --topology=v6e:2x4 --largest_batch",
        "tpugraph compile model.pb -o step.tpugraph --checkpoint=model_dir",
    ),
    (
        Flag("output", "string", None, "write the step, its variables and a manifest, for tpugraph.runtime.pjrt", short="o",
             shown="FILE.tpugraph"),
        Flag("checkpoint", "string", None, "of --output: the variables' values; their initialisers if not given", shown="PREFIX"),
        REBIND,
        Flag("topology", "string", "v5e:2x4", "which TPU to compile for", shown="NAME"),
        Flag("largest_batch", "boolean", False, "search the largest batch of a core that fits its memory"),
        Flag("topologies", "boolean", False, "list the known topologies and stop"),
        *CONVERSION,
        *COMMON,
    ),
)
VIEW = Command(
    "view", True, "show what a conversion did, as one page for a browser",
    "The page needs no server and no network: the graph by scopes, what runs on host and device, what goes between them, where "
    "each value lives and why, what each pass did, and what stops the graph on a TPU. MODEL is a plain graph, or a converted one, "
    "which is shown as it is.",
    ("tpugraph view model_dir -o page.html", "tpugraph view model.pb --format=model_explorer -o model.json"),
    (
        Flag("output", "string", None, "where to write; MODEL's name with the ending of the format if not given", short="o",
             shown="FILE"),
        Flag("format", "enum", "html", "a page, or what Google's Model Explorer, Graphviz or a program of your own reads",
             ("html", "model_explorer", "dot", "json")),
        *CONVERSION,
        *COMMON,
    ),
)
REPORT = Command(
    "report", True, "write the page that says whether to rent a TPU, and which",
    "Says whether the graph can run on a TPU and what must change, then asks the TPU compiler of each topology: memory of a core "
    "with the largest tensors, the least time of a step and what bounds it, traffic. The same as JSON lies beside the page. Needs "
    "no TPU; the compilers come with python -m pip install 'tpugraph[tpu]'. The exit code is 1 where it cannot run.",
    ("tpugraph report model_dir -o report.html", "tpugraph report model.pb --topology=v5e:2x4,v6e:2x4 --largest_batch"),
    (
        Flag("output", "string", None, "where to write; MODEL's name with .report.html if not given", short="o", shown="FILE.html"),
        Flag("topology", "list", ("v3:2x2", "v4", "v5e:2x4", "v5p", "v6e:2x4"),
             "which TPUs to ask; a generation alone is its smallest size with a core for each replica", shown="NAME,..."),
        Flag("largest_batch", "boolean", False, "search the largest batch of a core on each, which compiles it several times"),
        *CONVERSION,
        *COMMON,
    ),
)


# --------------------------------------------------------------------------- compare graphs and find faults

VERIFY = Command(
    "verify", True, "compare the converted graph with the plain one on your own data",
    "Trains the plain graph K steps, run by TensorFlow at its own batch, and the cores, which share each of its batches, one by "
    "one and as one loop, from the same weights. Compares every loss and every variable of every step, and says which variable "
    "differs most and by how much. The exit code is 1 where something differs by more than the tolerance.",
    ("tpugraph verify model.pb --steps=4 --checkpoint=model.ckpt-0", "tpugraph verify model.pb --grid=page.html"),
    (
        Flag("steps", "integer", 4, "number of steps to compare", shown="K", lowest=1),
        CHECKPOINT,
        Flag("tolerance", "float", 0.0001, "largest difference allowed, relative to the largest element of a variable", shown="X"),
        Flag("grid", "string", None,
             "how far each variable is apart after each step: text prints it, a name ending in .html is a page to write",
             shown="text|FILE.html"),
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
    "compare", True, "find the first tensor that differs between the plain and the converted graph",
    "Trains a few steps on each engine and compares the tensors of the step, its loss and its variables. The cores share each "
    "batch of the plain graph: rows of the cores are put together, parts of a sum are added up. Names the first tensor in "
    "topological order that differs, in which step, on which core, and where it lives. The exit code is 1 where one does.",
    (
        "tpugraph compare model.pb --checkpoint=model.ckpt-0",
        "tpugraph compare model.pb --engines=plain,emulator,pjrt --tensors='dense.*'",
    ),
    (
        Flag("engines", "list", ("plain", "emulator"),
             "what is compared with the first: plain, emulator (cores of this machine), pjrt (the loop compiled)", shown="NAME,..."),
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
    "reduce", True, "find the smallest graph that still shows a fault, and write a test of it",
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
        Flag("output", "string", None,
             "where to write the graph; the test goes beside it. MODEL's name with _reduced.pb, in this folder, if not given",
             short="o", shown="OUT.pb"),
        Flag("steps", "integer", 1, "steps of a try that trains", shown="K", lowest=1),
        CHECKPOINT,
        TOLERANCE,
        Flag("topology", "string", "v5e:2x4", "of xla:TEXT: which TPU to compile for", shown="NAME"),
        Flag("seconds", "float", 300.0, "how long the search may take", shown="SECONDS"),
        Flag("try_seconds", "float", 120.0, "how long a try may take; one that takes longer has crashed", shown="SECONDS"),
        REBIND,
        *TRAINED,
        *COMMON,
    ),
)
DIFF = Command(
    "diff", True, "say how two graphs differ, by what they mean",
    "Nodes are matched by name, and where names differ by what they read and who reads them. The order of nodes, shapes that were "
    "inferred, and attributes that have their default value mean nothing. The exit code is 1 where the graphs differ.",
    ("tpugraph diff model.pb model_tpu.pb", "tpugraph diff old/model.ckpt-0.meta new/model.ckpt-0.meta --all"),
    (
        Flag("all", "boolean", False, "list all nodes that differ, not the first 20 of each kind"),
        *COMMON,
    ),
    other="OTHER",
)


# --------------------------------------------------------------------------- the rest, and all

PASSES = Command(
    "passes", False, "list the passes of the pipeline",
    "For each pass in order: its name, its parameters, what it requires and ensures, and what it does.",
    ("tpugraph passes", "tpugraph passes --mode=eval"),
    (
        MODE[0],
        *COMMON,
    ),
)
SHELLS = ("bash", "zsh", "fish")
"""The shells that have completions."""

COMPLETION = Command(
    "completion", True, "print what a shell needs to complete commands and flags",
    "SHELL is bash, zsh or fish. The script goes where the shell looks for it; its first line says where.",
    ("tpugraph completion bash", "tpugraph completion fish"),
    COMMON,
    model="SHELL",
    tensorflow=False,
)
PROGRAM = Command(
    "program", True, "list what a program for TensorFlow 1.15 uses, and what of it is there",
    "PROGRAM is a Python file, or a folder of them. It is read and not run. Each name of TensorFlow 1.15 that it uses is said to "
    "work, to work with a difference, or not to be there, with what to use instead. The exit code is 1 where one is not there. "
    "`python -m tpugraph.compat PROGRAM` runs it as it is.",
    ("tpugraph program train.py", "tpugraph program train.py --all"),
    (
        Flag("all", "boolean", False, "list the names that simply work too"),
        *COMMON,
    ),
    model="PROGRAM",
    module="program_symbols",
)
COMMANDS = {
    command.name: command
    for command in (
        CONVERT,
        REBATCH,
        RUN,
        INSPECT,
        VERIFY,
        COMPARE,
        REDUCE,
        DIFF,
        CHECK,
        COMPILE,
        VIEW,
        REPORT,
        PASSES,
        WORKER,
        PROGRAM,
        COMPLETION,
    )
}
"""The commands by name, in the order of the help."""
