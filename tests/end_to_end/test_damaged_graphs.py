"""Damaged graphs through the commands: those that failed once, and new ones; the campaign behind it is tools/campaigns/graphs.py."""

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import silent
import tensorflow as tf

from campaigns import graph_mutants, graphs
from campaigns.graph_mutants import MUTATIONS, Mutant, mutants
from campaigns.graphs import Judge

tf1 = tf.compat.v1
ROOT = Path(__file__).parents[2]
FAULTS = sorted((ROOT / "tests" / "data" / "faults").glob("*.pb.gz"))


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(seconds=60) as held:  # a machine at work is slower than the 10 s of a campaign
        yield held


@pytest.mark.parametrize("fault", FAULTS, ids=lambda path: path.name.removesuffix(".pb.gz"))
def test_what_failed_once_gives_a_result_or_one_block(fault: Path, judge: Judge) -> None:
    command = next((name for name in ("run", "view", "diff") if f"-{name}-" in fault.name), None)
    commands = (command,) if command else ("inspect", "convert")
    assert judge.failure(gzip.decompress(fault.read_bytes()), commands) is None


def test_a_large_variable_of_one_number_takes_no_memory(judge: Judge) -> None:
    """A constant that says one number for 8 GiB is a usual first value; only training makes them."""
    with tf.Graph().as_default() as graph:
        ids = tf1.data.make_initializable_iterator(tf.data.Dataset.range(64).repeat().batch(8, drop_remainder=True))
        table = tf1.get_variable("table", initializer=tf.constant(0.5, shape=[2**22, 2**9]))
        loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, ids.get_next()) - 1.0))
        tf1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=tf1.train.get_or_create_global_step())
        tf1.summary.scalar("loss", loss)
    data = graph.as_graph_def(add_shapes=True).SerializeToString()
    assert judge.failure(data, ("inspect", "convert", "check", "view")) is None


@hypothesis.seed(20261127)
@hypothesis.settings(max_examples=24, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck),
                     phases=[hypothesis.Phase.generate])  # fmt: skip
@hypothesis.given(mutant=mutants())
def test_new_mutants_give_a_result_or_one_block(judge: Judge, mutant: Mutant) -> None:
    assert judge.failure(mutant.data, mutant.commands[:2]) is None, mutant


@pytest.mark.parametrize("mutator", MUTATIONS)
def test_mutants_differ_from_one_another(mutator: str) -> None:
    found = set()

    @hypothesis.settings(max_examples=20, database=None, deadline=None, derandomize=True)
    @hypothesis.given(mutants((mutator,), converted=False))
    def collect(mutant: Mutant) -> None:
        found.add(mutant.data)

    collect()
    assert len(found) >= 15


def test_what_goes_wrong_is_told_apart() -> None:
    def verdict(**answer: object) -> str | None:
        return graphs.verdict({"code": 2, "words": "error: no", "kinds": ["LoadError"], "memory": 0,
                               "seconds": 0.1} | answer, 10.0)  # fmt: skip

    assert verdict() is None
    assert str(verdict(words="error: KeyError\n  fix     this should not happen: report it")).startswith("raw: ")
    assert str(verdict(kinds=["InvariantError"])).startswith("invariant: ")
    assert verdict(memory=3 << 20) == "memory: 3.0 GiB above the start"
    assert verdict(seconds=10.5) == "slow: 10.5 s of the processor"
    text = 'name: "' + "x" * 60_000 + '"\n'
    for number in range(40):
        text = graph_mutants.damaged_text(random.Random(number), text)
    assert len(text) <= graph_mutants.MOST_BYTES


def test_a_command_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has nothing loaded, which takes longer than all else here, and never answers."""
    monkeypatch.setattr(graphs, "serve", silent.serve)
    with Judge(seconds=0.0) as impatient:
        assert str(impatient.failure(b"", ("inspect",))).startswith("inspect: hang: no answer within 0 s")
        assert impatient.server.process is None
