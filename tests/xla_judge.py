"""XLA's own partitioner as a judge: the plain step over the whole batch, divided by XLA along the rows of its inputs.

The step is converted and lowered for one core, so that no collective of tpugraph is in it. XLA gets one program, is
told that the rows of the inputs are spread over the devices and that every device holds all variables, and finds by
itself how to divide the rest and where the devices have to talk.
"""

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np

from programs.harness import Traced, Training
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.runtime.pjrt import compiled
from tpugraph.runtime.pjrt.devices import Array, Devices, Placed
from tpugraph.runtime.session import TPUSession
from tpugraph.xla import jax_client
from tpugraph.xla.module import Module, Value

THEMES = {
    "networks and optimizers": "optimizers/lamb_2 optimizers/sharpness_aware_2",
    "convolutions": "images/convolution_2",
    "batch statistics": "statistics/batch_norm_fused_2 statistics/batch_norm_by_hand_2",
    "embeddings": "embeddings/embedding_2 embeddings/two_lookups_adam_2",
    "attention": "attention/bert_2 attention/attention_over_batch_2",
    "rows against rows": "pairs/in_batch_softmax_2 pairs/triplets_2 pairs/sorted_batch_2",
    "numbers of the whole batch": "losses/log_sum_exp_of_batch_2 losses/maximum_of_batch_2",
    "order of the rows": "losses/running_sum_2 loops/scan_over_batch_2 embeddings/segments_2",
    "clipping": "clipping/clip_global_norm_adam_2",
    "several losses": "adversarial/multi_task_2 losses/gradient_penalty_2",
    "loops": "loops/loop_max_2 loops/map_over_batch_2 recurrent/dynamic_rnn_2",
    "branches": "control/accumulate_in_cond_with_average_2 control/branch_by_batch_2",
    "counts": "control/count_rows_2 control/metrics_in_step_2",
}
"""The programs, by what they are about.

Of programs that make cores talk in the same way, with another optimizer or another function of the same rows, one is judged;
``test_programs`` trains the others.
"""

JUDGED = [name for names in THEMES.values() for name in names.split()]
"""What the judge is asked about."""

ONE_LAYER = frozenset({"attention/bert_2"})
"""Those of them that are judged with one layer, as XLA takes as long for each of them again; ``test_programs`` trains two."""

_COLLECTIVE = re.compile(r" (all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all)(?:-start)?\(")


class Partitioned(Devices):
    """A module for one core that XLA divides among virtual devices; otherwise what :class:`Devices` is.

    Args:
        module: the program of the whole batch.
        count: number of devices.

    Attributes:
        collectives: how many of each kind stand in what XLA made.
    """

    def __init__(self, module: Module, count: int) -> None:
        assert module.num_replicas == 1
        self.module = module
        self._jax = jax_client.load("jax", "pjrt")
        client = jax_client.load("jaxlib.xla_client", "pjrt")
        self._devices = self._local = self._find(client, "cpu", count)
        self.own, self.first, self.kind = [0], True, str(self._devices[0].device_kind)
        mesh = self._jax.sharding.Mesh(np.array(self._devices), ("rows",))
        spec = self._jax.sharding.PartitionSpec
        self._same = self._jax.sharding.NamedSharding(mesh, spec())
        self._split = self._jax.sharding.NamedSharding(mesh, spec(None, "rows"))
        self._variables = {}
        started = time.perf_counter()
        self._run = self._devices[0].client.compile_and_load(
            self._with_shardings(), client.DeviceList(tuple(self._devices)), self._options(client)
        )
        self.seconds = time.perf_counter() - started
        self.collectives = Counter(_COLLECTIVE.findall(self._run.hlo_modules()[0].to_string()))

    def _with_shardings(self) -> Any:
        """The module with the sharding of each argument and result, in the words of XLA's partitioner GSPMD."""
        ir = jax_client.load("jaxlib.mlir.ir", "pjrt")
        parsed = jax_client.parse(self.module.code)
        with parsed.context:
            main = next(f for f in parsed.body.operations if f.attributes["sym_name"].value == "main")
            for kind, values in (("arg_attrs", self.module.arguments), ("res_attrs", self.module.results)):
                held = main.attributes[kind] if kind in main.attributes else [{}] * len(values)
                words = [{"mhlo.sharding": ir.StringAttr.get(self._words(value))} for value in values]
                both = [dict(old.items()) | new for old, new in zip(held, words, strict=True)]
                main.attributes[kind] = ir.ArrayAttr.get([ir.DictAttr.get(each) for each in both])
        return parsed

    def _words(self, value: Value) -> str:
        if not self._is_split(value):
            return "{replicated}"
        count, inner = len(self._devices), ",1" * (len(value.shape) - 2)
        return f"{{devices=[1,{count}{inner}]<=[{count}]}}"

    def _is_split(self, value: Value) -> bool:
        """Whether it is an input, [iterations, rows, ...], whose rows the devices can share evenly."""
        return value.kind == "infeed" and len(value.shape) > 1 and value.shape[1] % len(self._devices) == 0

    def _options(self, client: Any) -> Any:
        made = client.CompileOptions()
        made.num_replicas, made.num_partitions = 1, len(self._devices)
        ids = np.array([device.id for device in self._devices]).reshape(1, -1)
        made.device_assignment = client.DeviceAssignment.create(ids)
        made.executable_build_options.use_spmd_partitioning = True
        made.executable_build_options.use_shardy_partitioner = False
        # How it divides is judged, not how fast it runs: without LLVM's passes a step of BERT compiles in half the time.
        debug_options = made.executable_build_options.debug_options
        debug_options.xla_backend_optimization_level = 0
        debug_options.xla_llvm_disable_expensive_passes = True
        return made

    def stage(self, infeed: Sequence[Sequence[Array]]) -> Placed:
        """Spread the rows of the batches over the devices; what has no rows they all get."""
        placed: Placed = []
        for value, part in zip(self._of("infeed"), infeed[0], strict=True):
            array = np.asarray(part, value.dtype)
            if self._is_split(value):
                placed.append(self._place(np.split(array, len(self._devices), 1), self._split, value.shape))
            else:
                placed.append(self._everywhere(array))
        return placed

    def _results(self, found: Sequence[Sequence[Array]]) -> tuple[list[list[Array]], dict[str, Array]]:
        """What every device has whole, once."""
        sent, outputs = super()._results(found)
        return sent[:1], outputs


def run_partitioned(
    traced: Traced, steps: int, devices: int, options: Mapping[str, Any] | None = None
) -> tuple[Training, Counter[str]]:
    """Train a graph of the whole batch on devices among which XLA divides it.

    Args:
        traced: the graph, at the rows of all devices.
        steps: steps to train.
        devices: number of devices.
        options: to convert.

    Returns:
        The training, and how many collectives of each kind XLA made.
    """
    made: list[Partitioned] = []

    def divided(module: Module, *, platform: str) -> Partitioned:
        assert platform == "cpu"
        made.append(Partitioned(module, devices))
        return made[0]

    given = {"iterations_per_loop": steps, "loss": traced.loss, "train_op": traced.train, **(options or {})}
    graph = graphdef.from_graph_def(traced.graph.as_graph_def(), source="made.pb")
    converted = convert(graph, num_replicas=1, **given)
    with mock.patch.object(compiled, "Devices", divided), TPUSession(converted, engine="pjrt") as running:
        running.initialize()
        start = dict(running.values(traced.variables))
        losses = running.train(steps)
        values = dict(running.values(traced.variables))
    return Training(np.asarray(losses), values, start), made[0].collectives
