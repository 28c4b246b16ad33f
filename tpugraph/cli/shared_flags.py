"""Flags that several commands take. Needs no TensorFlow."""

from __future__ import annotations

from tpugraph.cli.declarations import Flag

COMMON = (
    Flag("json", "boolean", False, "print one machine-readable object on stdout, everything else on stderr"),
    Flag("traceback", "boolean", False, "print Python's traceback with an error"),
    Flag("help", "boolean", False, "print this help", short="h"),
)
"""The flags of every command."""

FINDING = (
    Flag(
        "train_op",
        "string",
        None,
        "the train op, or several with commas between; found by structure if not given",
        shown="NODE",
    ),
    Flag("loss", "string", None, "the loss; found by structure if not given", shown="TENSOR"),
)
"""What the roles are taken for."""

CORES = Flag(
    "num_replicas",
    "integer",
    None,
    "number of cores, which divides the batch; 8 if not given, or the largest of 4, 2 and 1 that does",
    shown="N",
    lowest=1,
)
LOOP = Flag("iterations_per_loop", "integer", 100, "steps per Session.run", shown="N", lowest=1)
GLOBAL_BATCH = Flag(
    "global_batch",
    "integer",
    0,
    "rows that a step reads, where that is another number than the plain graph's; see `tpugraph rebatch`",
    shown="G",
    lowest=0,
)
VARYING = Flag(
    "varying_updates",
    "enum",
    "mean",
    "what is written where the cores differ, as batch statistics do with --batch_norm=per_core",
    ("mean", "replica0", "error"),
)
EXACTNESS = (
    Flag(
        "batch_norm",
        "enum",
        "global",
        "global: statistics of the whole batch, as the plain graph has them; per_core: each core its own, without collectives",
        ("global", "per_core"),
    ),
    Flag(
        "step_order",
        "enum",
        "reads_first",
        "what comes first where the graph puts a read and a write of a variable, such as the step counter, in no order",
        ("reads_first", "writes_first"),
    ),
    Flag(
        "random",
        "enum",
        "per_core",
        "per_core: each core draws its own rows, as a TPU does; plain: the rows of what the plain graph draws",
        ("per_core", "plain"),
    ),
    Flag("batch_constants", "list", (), "of --global_batch: constants that grow with the batch", shown="NODE,..."),
    Flag("literals", "list", (), "of --global_batch: constants that do not", shown="NODE,..."),
)
"""How exactly the cores do what the plain graph does."""

MODE = (
    Flag(
        "mode",
        "enum",
        "train",
        "what the graph is for: eval and predict take the graphs that Estimator.evaluate and Estimator.predict build",
        ("train", "eval", "predict"),
    ),
    Flag(
        "metrics",
        "repeated",
        (),
        "of --mode=eval: value tensor and update op of a metric, for each metric; found by structure if not given",
        shown="NAME=VALUE,UPDATE",
    ),
    Flag(
        "predictions",
        "repeated",
        (),
        "of --mode=predict: tensor of a prediction, for each prediction; found by structure if not given",
        shown="NAME=TENSOR",
    ),
    Flag(
        "signature",
        "string",
        None,
        "of --mode=predict of a SavedModel: which signature; serving_default, or the only one, if not given",
        shown="NAME",
    ),
)
"""What the graph is for, and what it gives."""

PIPELINE = (
    Flag(
        "shard_tables",
        "integer",
        0,
        "share the rows of tables of at least so many bytes among the cores, where the step reads and writes them by rows",
        shown="BYTES",
        lowest=0,
    ),
    Flag(
        "max_ids",
        "integer",
        0,
        "the most ids that a row of a sparse column has, where no shape tells: rows are padded to so many",
        shown="N",
        lowest=0,
    ),
    Flag(
        "passes",
        "string",
        None,
        "the pipeline, such as 'prune,my.module:MyPass,...'; `tpugraph passes` lists the default, '...' is its rest",
        shown="LIST",
    ),
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
    Flag(
        "dump_changed", "boolean", False, "print on stderr which nodes each pass changed, as they were and as they are"
    ),
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
CHECKPOINT = Flag(
    "checkpoint", "string", None, "start from this checkpoint: a prefix, or a folder's newest", shown="PREFIX"
)
TOLERANCE = Flag(
    "tolerance",
    "float",
    1e-4,
    "largest difference that is none, relative to the largest element of a tensor",
    shown="X",
)
