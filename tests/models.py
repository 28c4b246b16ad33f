"""The real graphs under ``tests/data`` with the training that was recorded from them, and small graphs made here."""

import functools
import gzip
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops, roles, testing
from tpugraph.analysis.batched_input import rows_read
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.passes import PASSES
from tpugraph.roles.findings import Finding, Roles, Variable
from tpugraph.runtime.session import TPUSession
from tpugraph.testing import Training
from tpugraph.tpu.pipeline import Pass

DATA = Path(__file__).parent / "data"
CORPUS = DATA / "corpus"
FAMILIES = DATA / "families"
ORACLE = DATA / "oracle"
GOLDEN = Path(__file__).parent / "golden"

tf1 = tf.compat.v1


@dataclass(frozen=True)
class Model:
    """A folder that a TensorFlow 1.15 Estimator left, with the losses of ``plain`` and ``global8``."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def checkpoint(self) -> Path:
        return self.folder / "model.ckpt-0"

    @functools.cached_property
    def golden(self) -> dict[str, Any]:
        return json.loads((self.folder / "golden.json").read_text())

    def has(self, mode: str) -> bool:
        return (self.folder / f"final_{mode}.npz").exists()

    def losses(self, mode: str) -> list[float]:
        return list(self.golden["losses"][mode].values())

    def recorded(self, mode: str) -> Training:
        with np.load(self.folder / f"final_{mode}.npz") as values:
            return Training(self.losses(mode), {key: values[key] for key in values.files})

    @contextmanager
    def session(self, program: Any, **options: Any) -> Iterator[TPUSession]:
        """A session of a converted graph at the checkpoint."""
        with TPUSession(program, **options) as opened:
            opened.restore(self.checkpoint)
            yield opened

    def trained(self, program: Any, steps: int, **options: Any) -> Training:
        """Some steps of a converted graph from the checkpoint."""
        with self.session(program, **options) as session:
            return Training(session.train(steps), session.values())

    @functools.cached_property
    def rows(self) -> int:
        """The rows that a step of the plain graph reads."""
        graph = self.graph()
        graph.roles = roles.find(graph)
        return rows_read(graph) or 0

    def options(self, mode: str) -> dict[str, Any]:
        """How the recorded graph is converted for what was recorded: ``global8`` reads 8 times the rows."""
        return {"random": "plain", "global_batch": 8 * self.rows if mode == "global8" else 0}

    def assert_recorded(self, found: Training, mode: str) -> None:
        """The losses of the first ten steps closely; later ones and variables as TensorFlow 1.15 sums in another order."""
        np.testing.assert_allclose(found.losses[:10], self.losses(mode)[:10], rtol=1e-5)
        testing.assert_same_training(found, self.recorded(mode), relative=1e-3, absolute=1e-5)

    def graph(self, file: str = "model.pb") -> Graph:
        """The graph; ``model.pb`` may be stored compressed."""
        packed = self.folder / f"{file}.gz"
        if not packed.exists():
            return graphdef.load(self.folder / file)
        definition = tf1.GraphDef.FromString(gzip.decompress(packed.read_bytes()))
        return graphdef.from_graph_def(definition, source=f"{self.name}/{file}")


def corpus(name: str) -> Model:
    return Model(CORPUS / name)


def family(name: str) -> Model:
    return Model(FAMILIES / name)


def folders(place: Path, mode: str) -> list[str]:
    """Names of the folders with a recording of ``plain`` or ``global8``."""
    return [folder.name for folder in sorted(place.iterdir()) if (folder / f"final_{mode}.npz").exists()]


# --------------------------------------------------------------------------- small graphs


def batches(arrays: tuple[np.ndarray, ...], rows: int, *, drop_remainder: bool = True) -> tuple[Any, ...]:
    """The next batch of an input pipeline over arrays, as Estimator's input functions make one."""
    data = tf1.data.Dataset.from_tensor_slices(arrays).batch(rows, drop_remainder=drop_remainder)
    return tf1.data.make_initializable_iterator(data.repeat()).get_next()


def trace(build: Callable[[], Any], *, resource: bool = False, functional: bool = False, seed: int = 7) -> Graph:
    """The graph that ``build`` makes under TensorFlow 1 rules (old control flow too), as a file would hold it.

    With ``functional`` loops and conditionals are functional ones, as TensorFlow 2 makes them.
    """
    new_control_flow = tf1.control_flow_v2_enabled()
    (tf1.enable_control_flow_v2 if functional else tf1.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default() as graph, tf1.variable_scope("", use_resource=resource):
            tf1.set_random_seed(seed)
            build()
            if tf1.global_variables():
                tf1.train.Saver(tf1.global_variables())
    finally:
        (tf1.enable_control_flow_v2 if new_control_flow else tf1.disable_control_flow_v2)()
    return graphdef.from_graph_def(graph.as_graph_def(), source="made.pb")


def saved(graph: Graph, folder: Path) -> Path:
    place = folder / "model.pb"
    graphdef.save(graph, place)
    return place


def rows_of(count: int, width: int, *, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Features and one target per row; no two rows alike."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, width)).astype(np.float32)
    return features, (features @ random.normal(size=(width,)) + 0.1 * random.normal(size=count)).astype(np.float32)


def variable(name: str, shape: tuple[int, ...], *, scale: float = 0.5, **options: Any) -> Any:
    """A variable with fixed values that are all different."""
    size = int(np.prod(shape))
    values = scale * np.cos(1.7 * np.arange(1, size + 1) + len(name)).reshape(shape)
    return tf1.get_variable(name, initializer=tf.constant(values.astype(np.float32)), **options)


# --------------------------------------------------------------------------- passes under test


def by_hand(graph: Graph, *, loss: str = "loss", train: str = "train") -> Roles:
    """Roles for a graph of opaque ops, which no search would find."""
    assert {loss, train} <= {node.name for node in graph}
    named = Finding(loss, "by hand"), [Finding(train, "by hand")]
    return Roles(named[0], named[1], None, [], {n.name: Variable(n.name) for n in graph if n.op in ops.VARIABLES}, [])


def passes_before(step: type[Pass], **values: Any) -> list[Pass]:
    """The passes of the default pipeline that run before one, for ``num_replicas`` cores and so on."""
    before = PASSES[: PASSES.index(step)]
    return [cls(**{key: value for key, value in values.items() if key in cls.parameters()}) for cls in before]


def check(step: Pass, case: str, *, find: Any = roles.find, after: bool = True, **values: Any) -> Graph:
    """One golden file of ``tests/golden``; the passes before it run first unless ``after`` is False."""
    earlier = passes_before(type(step), **values) if after else []
    return testing.check_golden(step, GOLDEN / step.name / f"{case}.txt", roles=find, after=earlier)


def assert_same_on_cores(
    build: Callable[[int], Any],
    *,
    relative: float = 2e-5,
    absolute: float = 2e-6,
    cores: int = 4,
    rows: int = 4,
    steps: int = 6,
    combined: int | None = None,
    resource: bool = False,
    functional: bool = False,
    **options: Any,
) -> None:
    """The step at ``rows * cores`` rows on emulated cores, which draw what it draws, against TensorFlow alone.

    ``combined`` is how many tensors the cores of the converted step combine.
    """

    def whole() -> Graph:
        return trace(lambda: build(rows * cores), resource=resource, functional=functional)

    plain = testing.run_plain(whole(), steps=steps)
    options = {"iterations_per_loop": 4, "random": "plain", **options}
    found = testing.run_on_cores(whole(), steps=steps, num_replicas=cores, **options)
    assert len(set(plain.losses)) == steps, "a loss that never changes proves nothing"
    testing.assert_same_training(found, plain, relative=relative, absolute=absolute)
    if combined is not None:
        assert len(convert(whole(), num_replicas=cores).report["collectives"]["combined"]) == combined


def as_test(
    check: Callable[..., Any], *leading: str, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """A test that has ``check`` look at what is decorated; the arguments beside ``leading`` ones, which it gives, are the test's."""

    def made(build: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(build)
        def test(**given: Any) -> None:
            check(functools.partial(build, **given), **options)

        signature = inspect.signature(build)
        test.__signature__ = signature.replace(
            parameters=[p for p in signature.parameters.values() if p.name not in leading]
        )
        return test

    return made


def trains_on_cores(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """A test of a step that is decorated: :func:`assert_same_on_cores` of what it builds at so many ``rows``.

    Its other arguments are the test's; one called ``resource`` says which variables the step has.
    """

    def check(build: Any) -> None:
        form = {name: build.keywords[name] for name in build.keywords.keys() & {"resource", "cores"}}
        assert_same_on_cores(build, **options, **form)

    return as_test(check, "rows")


def linear(rows: int, *, width: int = 3) -> tuple[Any, Any, Any]:
    features, targets = batches(rows_of(96, width), rows)
    return features, targets, variable("w", (width, 1))


def squared_error(features: Any, targets: Any, weights: Any) -> Any:
    return tf.square(tf.squeeze(features @ weights, 1) - targets)


def finish(loss: Any, optimizer: Any, *, variables: Any = None) -> Any:
    """The train op, with the step counter, as Estimator's model functions make one."""
    step = tf1.train.get_or_create_global_step()
    tf1.summary.scalar("loss", loss)
    return optimizer.minimize(loss, global_step=step, var_list=variables, name="train")
