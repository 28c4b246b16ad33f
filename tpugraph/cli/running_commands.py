"""The commands that convert and run a graph, as data. Needs no TensorFlow."""

from __future__ import annotations

from tpugraph.cli.declarations import Command, Flag
from tpugraph.cli.shared_flags import CHECKPOINT, COMMON, CONVERSION, EXACTNESS, FINDING, GLOBAL_BATCH, REBIND, WORKERS

CONVERT = Command(
    "convert",
    True,
    "rewrite a plain training graph into a TPU training graph",
    "MODEL is a GraphDef (.pb, .pbtxt), a MetaGraphDef (.meta), a SavedModel or an Estimator's model_dir; which one is "
    "told from its content. The output is one GraphDef that needs no side file.",
    ("tpugraph convert model_dir/model.ckpt-0.meta -o model_tpu.pb --num_replicas=8 --iterations_per_loop=100",),
    (
        Flag(
            "output",
            "string",
            None,
            "where to write; MODEL's name with _tpu.pb if not given",
            short="o",
            shown="OUT.pb",
        ),
        *CONVERSION,
        Flag("report", "string", None, "write what was found and done as JSON", shown="FILE.json"),
        Flag("dry_run", "boolean", False, "convert and print, but write nothing"),
        *COMMON,
    ),
)
REBATCH = Command(
    "rebatch",
    True,
    "write the plain graph with another batch",
    "The input reads G rows a step, and what follows the batch in the graph is scaled: sizes of what has rows, and numbers that are "
    "read as the rows, each of which is listed with the reason. The output is a plain GraphDef, for TensorFlow as much as for "
    "`tpugraph convert`, whose --global_batch=G does the same first.",
    ("tpugraph rebatch model_dir/model.ckpt-0.meta --global_batch=256 -o model_256.pb",),
    (
        Flag(
            "output", "string", None, "where to write; MODEL's name with _G.pb if not given", short="o", shown="OUT.pb"
        ),
        GLOBAL_BATCH,
        *FINDING[:2],
        *(flag for flag in EXACTNESS if flag.name in ("batch_constants", "literals")),
        *COMMON,
    ),
)
RUN = Command(
    "run",
    True,
    "train, evaluate or predict: on TPU devices, PJRT devices, or emulated cores of this machine",
    "MODEL is a converted graph, or a plain one, which is then converted first with the same flags as `tpugraph "
    "convert`. With --model_dir, training goes on where that folder's newest checkpoint ends. A graph of mode eval or "
    "predict takes its variables from there, runs over all its data (or --steps global batches), and gives each example once. "
    "A bundle that `tpugraph compile -o` wrote has flags of its own: `tpugraph run step.tpugraph --help`.",
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
        Flag(
            "max_steps",
            "integer",
            None,
            "train to this global step, so that a command can be repeated",
            shown="N",
            lowest=1,
        ),
        Flag(
            "output",
            "string",
            None,
            "of mode predict: where a line of JSON per example goes; stdout if not given",
            short="o",
            shown="FILE.jsonl",
        ),
        CHECKPOINT,
        Flag("model_dir", "string", None, "folder to save checkpoints in and to resume from", shown="DIR"),
        Flag(
            "save_steps",
            "integer",
            None,
            "steps between checkpoints, which are saved at loop ends; 10 minutes if not given",
            shown="N",
            lowest=1,
        ),
        Flag("async_save", "boolean", False, "write checkpoints beside training; a step waits for the copy alone"),
        Flag(
            "master",
            "string",
            "",
            "address of a TensorFlow server with TPU devices; emulated cores if empty",
            shown="ADDRESS",
        ),
        WORKERS,
        Flag(
            "engine",
            "enum",
            "emulator",
            "what trains where no TPU master does; pjrt compiles the loop for devices of jax, auto does where those are accelerators",
            ("emulator", "pjrt", "auto"),
        ),
        Flag(
            "coordinator", "string", None, "of --engine=pjrt on several hosts: address of process 0", shown="HOST:PORT"
        ),
        Flag(
            "connect_timeout",
            "float",
            15.0,
            "how long --master, --workers and --coordinator are waited for",
            shown="SECONDS",
        ),
        Flag("processes", "integer", 1, "how many processes --coordinator joins", shown="N", lowest=1),
        Flag("process", "integer", 0, "the number of this process", shown="N", lowest=0),
        Flag("platform", "enum", None, "devices of --engine=pjrt; cpu makes virtual ones", ("cpu", "gpu", "tpu")),
        REBIND,
        Flag("losses", "string", None, 'write a line {"step": 1, "loss": 0.5} per step', shown="FILE.jsonl"),
        Flag(
            "trace",
            "string",
            None,
            "write a timeline of the training, for ui.perfetto.dev, and say what bound it",
            shown="FILE.json",
        ),
        *CONVERSION,
        *COMMON,
    ),
)
WORKER = Command(
    "worker",
    False,
    "serve the cores of this machine to a training on several hosts",
    "Every worker is started with the same list. `tpugraph run --workers=...`, and a TPUEstimator whose RunConfig names the\n"
    "workers, share the cores among them. It serves until it is ended.",
    ("tpugraph worker --workers=10.0.0.2:8470,10.0.0.3:8470 --task=0",),
    (
        WORKERS,
        Flag("task", "integer", 0, "which of them this is, from 0", shown="INDEX", lowest=0),
        *COMMON,
    ),
)
