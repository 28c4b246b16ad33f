"""The commands: each is a function that declares its flags, and whose docstring is its help. Needs no TensorFlow."""

# fmt: off
from __future__ import annotations

from tpugraph.cli.flags import COMMANDS, Flags, command

__all__ = ["COMMANDS"]


# --------------------------------------------------------------------------- flags of several commands


def _mode(flags: Flags) -> None:
    flags.enum("mode", ("train", "eval", "predict"),
               "eval and predict convert the graphs that Estimator.evaluate and Estimator.predict build")
    flags.repeated("metrics", "NAME=VALUE,UPDATE",
                   "of --mode=eval: value tensor and update op of a metric, for each metric; found by structure if not given")
    flags.repeated("predictions", "NAME=TENSOR",
                   "of --mode=predict: tensor of a prediction, for each prediction; found by structure if not given")
    flags.string("signature", "NAME",
                 "of --mode=predict of a SavedModel: which signature; serving_default, or the only one, if not given")


def _another_batch(flags: Flags) -> None:
    flags.integer("global_batch", "G",
                  "another batch size than the plain graph's, in rows; see `tpugraph rebatch`", 0)
    flags.names("batch_constants", "NODE,...", "of --global_batch: constants that grow with the batch")
    flags.names("literals", "NODE,...", "of --global_batch: constants that do not")
    flags.string("train_op", "NODE", "the train op, or several with commas between; found by structure if not given")
    flags.string("loss", "TENSOR", "the loss; found by structure if not given")


def _training(flags: Flags, *, loop: bool = True) -> None:
    flags.integer("num_replicas", "N",
                  "number of cores, which divides the batch; 8 if not given, or the largest of 4, 2 and 1 that does", lowest=1)
    if loop:
        flags.integer("iterations_per_loop", "N", "steps per Session.run", 100, lowest=1)
    _another_batch(flags)
    flags.enum("varying_updates", ("mean", "replica0", "error"),
               "how a variable is updated where the cores differ, as with --batch_norm=per_core")
    flags.enum("batch_norm", ("global", "per_core"),
               "global: statistics of the whole batch, as the plain graph has them; per_core: each core its own, without collectives")
    flags.enum("step_order", ("reads_first", "writes_first"),
               "which runs first where the graph leaves a read and a write of a variable, such as the step counter, unordered")
    flags.enum("random", ("per_core", "plain"),
               "per_core: each core draws its own rows, as a TPU does; plain: each core uses its rows of the plain graph's draws")
    flags.integer("shard_tables", "BYTES",
                  "shard the rows of tables of at least so many bytes over the cores, where the step gathers and updates rows", 0)
    flags.repeated("set_shape", "NODE:32,4", "the shape of a tensor that the graph leaves open; may be given several times")
    flags.integer("max_ids", "N",
                  "the most ids in a row of a sparse column, to which rows are padded; needed where no shape bounds them", 0)
    flags.string("passes", "LIST",
                 "the pipeline, such as 'prune,my.module:MyPass,...'; `tpugraph passes` lists the default, '...' is its rest")


def _conversion(flags: Flags) -> None:
    _mode(flags)
    _training(flags)
    flags.string("dump_dir", "DIR", "folder for a numbered text dump after each pass")
    flags.names("dump_after", "PASS,...", "dump after these passes only")
    flags.boolean("dump_changed", "print on stderr which nodes each pass changed, as they were and as they are")


def _rebind(flags: Flags) -> None:
    flags.repeated("rebind", "OLD=NEW", "replace a file name in the graph; may be given several times")


def _mesh(flags: Flags) -> None:
    flags.string("mesh", "data:4,model:2", "the device mesh over which XLA partitions the step; all devices along data if not given")
    flags.repeated("shard", "REGEX=AXIS,-",
                   "shard the variables whose name matches: an axis or - for each dimension; may be given several times")
    flags.string("shard_optimizer", "AXIS", "the axis along which the optimizer's variables are sharded", "")
    flags.enum("partitioner", ("shardy", "gspmd"), "the partitioner of XLA that is used")


def _platform(flags: Flags, engines: str) -> None:
    flags.enum("platform", ("cpu", "gpu", "tpu"), f"devices of {engines}; cpu makes virtual ones", None)
    flags.boolean("tf32", "of xla on GPUs: round the operands of float32 products to TensorFloat-32, as TensorFlow 2 and jax do, "
                  "which is faster")  # fmt: skip


def _workers(flags: Flags) -> None:
    flags.names("workers", "HOST:PORT,...", "the addresses of all workers; see `tpugraph worker`")


def _steps_compared(flags: Flags, steps: int, what: str) -> None:
    flags.integer("steps", "K", what, steps, lowest=1)
    flags.string("checkpoint", "PREFIX", "start from this checkpoint: a prefix, or a folder's newest")
    flags.number("tolerance", "X", "largest difference that counts as equal, relative to the largest element of a tensor", 0.0001)
    _rebind(flags)


# --------------------------------------------------------------------------- convert and run


@command()
def convert(flags: Flags) -> None:
    """rewrite a plain training graph into a TPU training graph

    MODEL is a GraphDef (.pb, .pbtxt), a MetaGraphDef (.meta), a SavedModel or an Estimator's model_dir; its content tells
    which. The output is one GraphDef that needs no side file.

    tpugraph convert model_dir/model.ckpt-0.meta -o model_tpu.pb --num_replicas=8 --iterations_per_loop=100
    """
    flags.string("output", "OUT.pb", "where to write; MODEL's name with _tpu.pb if not given", short="o")
    _conversion(flags)
    flags.string("report", "FILE.json", "write what was found and done as JSON")
    flags.boolean("dry_run", "convert and print, but write no graph")


@command()
def rebatch(flags: Flags) -> None:
    """write the plain graph with another batch

    The input reads G rows a step. Shapes and constants that depend on the batch are scaled; each constant is listed with the
    reason. The output is a plain GraphDef, which TensorFlow and `tpugraph convert` read; `tpugraph convert --global_batch=G` does
    both in one.

    tpugraph rebatch model_dir/model.ckpt-0.meta --global_batch=256 -o model_256.pb
    """
    flags.string("output", "OUT.pb", "where to write; MODEL's name with _G.pb if not given", short="o")
    _another_batch(flags)


@command()
def run(flags: Flags) -> None:
    """train, evaluate or predict: on TPU devices, PJRT devices, or emulated cores of this machine

    MODEL is a converted graph, or a plain one, which is then converted first with the same flags as `tpugraph convert`. With
    --model_dir, training goes on where that folder's newest checkpoint ends. A graph of mode eval or predict takes its variables
    from there, runs over all its data (or --steps global batches), and gives each example once. A bundle that `tpugraph compile
    -o` wrote has flags of its own: `tpugraph run step.tpugraph --help`.

    tpugraph run model_tpu.pb --steps=1000 --model_dir=out --losses=losses.jsonl
    tpugraph run model.pb --steps=24 --checkpoint=model.ckpt-0 --rebind=train.tfrecords=/data/train.tfrecords
    tpugraph run model.pb --steps=1000 --platform=gpu
    tpugraph run model.pb --steps=1000 --mesh=data:4,model:2 --shard='.*/word_embeddings=model,-'
    tpugraph run model_tpu.pb --steps=1000 --workers=10.0.0.2:8470,10.0.0.3:8470
    tpugraph run model_dir --mode=eval
    tpugraph run eval.meta --mode=eval --checkpoint=model_dir
    tpugraph run predict.meta --mode=predict --checkpoint=model_dir --output=predictions.jsonl
    tpugraph run saved_model --mode=predict --rebind=examples.tfrecord=mine.tfrecord
    """
    flags.integer("steps", "N", "number of steps to train from the checkpoint on", lowest=1)
    flags.integer("max_steps", "N", "train to this global step, so that a command can be repeated", lowest=1)
    flags.string("output", "FILE.jsonl", "of --mode=predict: the file for a line of JSON per example; stdout if not given", short="o")
    flags.string("checkpoint", "PREFIX", "start from this checkpoint: a prefix, or a folder's newest")
    flags.string("model_dir", "DIR", "folder to save checkpoints in and to resume from")
    flags.integer("save_steps", "N", "steps between checkpoints, which are saved at loop ends; 10 minutes if not given", lowest=1)
    flags.boolean("async_save", "write checkpoints in the background; training waits only while the variables are copied")
    flags.string("master", "ADDRESS", "address of a TensorFlow server with TPU devices; emulated cores if empty", "")
    _workers(flags)
    flags.enum("engine", ("emulator", "pjrt", "xla", "auto"), "without a TPU master: emulator; xla, which partitions the plain "
               "step over the devices of jax, the default with --platform, --mesh or --coordinator; pjrt, which compiles the loop "
               "of each core for a device; auto, which takes xla where there are accelerators")
    _mesh(flags)
    flags.boolean("fit", "search a mesh on which the step fits the memory of a device, and train on it; see `tpugraph compile --fit`")
    flags.string("topology", "NAME", "of --fit: the TPU whose memory the step must fit, where the devices do not report theirs")
    flags.enum("distributed", ("off", "auto"), "with pjrt and xla on several hosts: join the processes of a cluster that jax knows "
               "(TPU hosts of GKE and Compute Engine, Slurm, Open MPI)")
    flags.string("coordinator", "HOST:PORT", "address of process 0, to join processes without such a cluster")
    flags.integer("processes", "N", "how many processes --coordinator joins", 1, lowest=1)
    flags.integer("process", "N", "the number of this process", 0)
    flags.number("connect_timeout", "SECONDS", "how long to wait for --master, --workers or the other processes", 15.0)
    _platform(flags, "pjrt and xla")
    _rebind(flags)
    flags.string("losses", "FILE.jsonl", 'write a line {"step": 1, "loss": 0.5} per step')
    flags.string("trace", "FILE.json", "write a timeline of the training for ui.perfetto.dev, and print the bottleneck")
    _conversion(flags)


@command("")
def worker(flags: Flags) -> None:
    """run a worker: this host's part of the cores in a training on several hosts

    Start every worker with the same list. `tpugraph run --workers=...`, and a TPUEstimator whose RunConfig names the workers,
    place the cores on them. A worker serves until it is stopped.

    tpugraph worker --workers=10.0.0.2:8470,10.0.0.3:8470 --task=0
    """
    _workers(flags)
    flags.integer("task", "INDEX", "the index of this worker in --workers, from 0", 0)


# --------------------------------------------------------------------------- say what a graph is, and whether a TPU takes it


@command()
def inspect(flags: Flags) -> None:
    """show what a graph holds and what tpugraph makes of it

    Prints kind, size and ops, the role of each node that has one with the reason, the trained variables, and what a conversion
    reports. With --mesh it also prints how each variable is sharded over the devices. Nothing is written.

    tpugraph inspect model_dir
    tpugraph inspect model.pb --why=dense/kernel
    tpugraph inspect model.pb --why=dense/kernel --mesh=data:4,model:2 --shard='.*/kernel=-,model'
    """
    flags.string("why", "NODE", "explain one node: its role, what the passes did to it, and why its value is replicated or sharded")
    flags.boolean("why_all", "with --why: follow every operand that decided a placement, and print every line")
    _mesh(flags)
    _mode(flags)
    _training(flags)


@command()
def check(flags: Flags) -> None:
    """say whether a graph can run on a TPU, and which node stops it

    MODEL is a converted graph, or a plain one, which is then converted first with the same flags as `tpugraph convert`. Looks at
    each node of the device: kernels of XLA, operands that must be constants, loops, unknown shapes; then TensorFlow lowers the
    step for XLA, which decides. Needs neither a TPU nor libtpu. The exit code is 0 where the graph can run, else 1.

    tpugraph check model.pb
    tpugraph check model_dir --num_replicas=8 --fail_under=99.5 --json
    """
    flags.number("fail_under", "PERCENT",
                 "exit with 0 also where the graph converts and at least this share of the device's nodes can compile")
    _conversion(flags)


@command()
def compile(flags: Flags) -> None:
    """compile a graph with the real TPU compiler, without a TPU

    MODEL is a converted graph, or a plain one, which is then converted first with the same flags as `tpugraph convert`. Prints
    whether it compiles, else the compiler's error with the node; memory per core, flops, traffic. Needs jax and libtpu: python
    -m pip install 'tpugraph[tpu]'. With --output it writes a bundle that jax alone can train, and compiles for a TPU only where
    --topology is given too.

    tpugraph compile model.pb --topology=v5e:2x4
    tpugraph compile model.pb --topology=v6e:2x4 --largest_batch
    tpugraph compile model.pb -o step.tpugraph --checkpoint=model_dir
    """
    flags.string("output", "FILE.tpugraph", "write the step, its variables and a manifest, for tpugraph.runtime.pjrt", short="o")
    flags.string("checkpoint", "PREFIX", "of --output: the values of the variables; their initialisers run if not given")
    _rebind(flags)
    flags.string("topology", "NAME", "the TPU to compile for", "v5e:2x4")
    _mesh(flags)
    flags.boolean("fit", "search a mesh on which the step fits the memory of a core, and print the command line that trains on it")
    flags.boolean("largest_batch", "search the largest batch of a core that fits its memory")
    flags.boolean("topologies", "list the known topologies and stop")
    _conversion(flags)


@command()
def view(flags: Flags) -> None:
    """show what a conversion did, as one page for a browser

    The page needs no server and no network. It shows the graph by scopes, host and device with the values between them, the
    placement of each value with its reason, what each pass changed, and what keeps the graph off a TPU. MODEL is a plain graph, or
    a converted one, which is shown as it is.

    tpugraph view model_dir -o page.html
    tpugraph view model.pb --format=json -o model.json
    """
    flags.string("output", "FILE", "where to write; MODEL's name with the ending of the format if not given", short="o")
    flags.enum("format", ("html", "json"), "a page, or its data for a program of your own")
    _mesh(flags)
    _conversion(flags)


@command()
def report(flags: Flags) -> None:
    """write the page that says whether to rent a TPU, and which

    Says whether the graph can run on a TPU and what must change, then compiles it for each topology: memory of a core with the
    largest tensors, the least time of a step and what bounds it, traffic. A JSON file of the same data is written beside the page.
    Needs no TPU; the compilers come with python -m pip install 'tpugraph[tpu]'. The exit code is 1 where the graph cannot run.

    tpugraph report model_dir -o report.html
    tpugraph report model.pb --topology=v5e:2x4,v6e:2x4 --largest_batch
    """
    flags.string("output", "FILE.html", "where to write; MODEL's name with .report.html if not given", short="o")
    flags.names("topology", "NAME,...",
               "the TPUs to compile for; of a generation without a size, the smallest with a core for each replica",
               ("v3:2x2", "v4", "v5e:2x4", "v5p", "v6e:2x4"))
    flags.boolean("largest_batch", "search the largest batch of a core on each, which compiles the step several times")
    flags.boolean("fit", "search as `tpugraph compile --fit` on each, and show every mesh that fits")
    _conversion(flags)


# --------------------------------------------------------------------------- compare graphs and find faults


@command()
def verify(flags: Flags) -> None:
    """compare the converted graph with the plain one on your own data

    Trains K steps from the same weights: the plain graph in TensorFlow at its own batch, and the cores, which split each batch,
    step by step and then in one loop. Compares every loss and every variable of every step, and says which variable differs most
    and by how much. The exit code is 1 where something differs by more than the tolerance.

    tpugraph verify model.pb --steps=4 --checkpoint=model.ckpt-0
    tpugraph verify model.pb --grid=page.html
    tpugraph verify model.pb --mesh=data:4,model:2 --shard='.*/kernel=-,model'
    """
    _steps_compared(flags, 4, "number of steps to compare")
    flags.string("grid", "FILE.html", "write a page with the difference of each variable after each step")
    flags.enum("engine", ("emulator", "xla"), "what trains the converted graph; xla partitions the plain step over devices")
    _mesh(flags)
    _platform(flags, "xla")
    _training(flags, loop=False)


@command()
def compare(flags: Flags) -> None:
    """find the first tensor that differs between the plain and the converted graph

    Trains a few steps on each engine and compares the tensors of the step, its loss and its variables. The cores split each batch
    of the plain graph; before a comparison their rows are concatenated and their partial sums added. Prints the first tensor in
    topological order that differs, with its step, core and placement. The exit code is 1 where one does.

    tpugraph compare model.pb --checkpoint=model.ckpt-0
    tpugraph compare model.pb --engines=plain,emulator,pjrt --tensors='dense.*'
    tpugraph compare model.pb --mesh=data:4,model:2 --shard='.*/kernel=-,model'
    """
    flags.names("engines", "NAME,...",
               "the engines, each compared with the first: plain, emulator (cores of this machine), pjrt (the compiled loop), xla "
               "(the plain step, partitioned by XLA; with --mesh the default is plain,xla)", ("plain", "emulator"))
    _mesh(flags)
    _platform(flags, "pjrt and xla")
    flags.string("tensors", "REGEX", "compare the tensors whose names match, or all", "all")
    _steps_compared(flags, 1, "number of steps to compare")
    _training(flags)


@command()
def reduce(flags: Flags) -> None:
    """find the smallest graph that still shows a fault, and write a test of it

    Takes the flags of the command that showed the fault. Cuts the graph down, whole loops and branches at a time, and feeds
    recorded values where it was cut, as long as the fault shows. Each try runs in a child process. --when is the fault: differs
    (trains otherwise than the plain graph), refused:CODE (CODE is a cause of `tpugraph check` such as kernel, a class of errors, a
    pass, or words of the error), crashes, or xla:TEXT (words of the TPU compiler's error).

    tpugraph reduce model.pb --when=differs --passes=prune,...,partition,my.module:MyPass,...
    tpugraph reduce model.pb --when=refused:kernel -o small.pb
    """
    flags.string("when", "FAULT", "the fault: differs, refused:CODE, crashes or xla:TEXT", "differs")
    flags.string("output", "OUT.pb",
                 "where to write the graph; the test goes beside it. MODEL's name with _reduced.pb, in this folder, if not given",
                 short="o")
    _steps_compared(flags, 1, "steps of a try that trains")
    flags.string("topology", "NAME", "of xla:TEXT: the TPU to compile for", "v5e:2x4")
    flags.number("seconds", "SECONDS", "how long the search may take", 300.0)
    flags.number("try_seconds", "SECONDS", "how long a try may take; a longer one counts as crashed", 120.0)
    _training(flags)


@command("MODEL OTHER")
def diff(flags: Flags) -> None:
    """say how two graphs differ, by what they mean

    Nodes are matched by name. The order of nodes, inferred shapes, and attributes that have their default value are ignored.
    The exit code is 1 where the graphs differ.

    tpugraph diff model.pb model_tpu.pb
    tpugraph diff old/model.ckpt-0.meta new/model.ckpt-0.meta --all
    """
    flags.boolean("all", "list all nodes that differ, not the first 20 of each kind")


# --------------------------------------------------------------------------- the rest


@command("")
def passes(flags: Flags) -> None:
    """list the passes of the pipeline

    For each pass in order: its name, its parameters, what it requires and ensures, and what it does.

    tpugraph passes
    tpugraph passes --mode=eval
    """
    flags.enum("mode", ("train", "eval", "predict"), "what the graph is for")


@command("PROGRAM")
def program(flags: Flags) -> None:
    """list the TensorFlow 1.15 names that a program uses, and which of them work

    PROGRAM is a Python file, or a folder of them, which is read and not run. Of each name of TensorFlow 1.15 in it the command
    prints whether it works, works with a difference, or is not there, with what to use instead. The exit code is 1 where one is not
    there. `python -m tpugraph.compat PROGRAM` runs it as it is.

    tpugraph program train.py
    tpugraph program train.py --all
    """
    flags.boolean("all", "list also the names that work")
