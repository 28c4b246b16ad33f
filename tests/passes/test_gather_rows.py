from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from evaluating import check
from host_values import value_of

from models import by_hand
from tpugraph import testing
from tpugraph.analysis.placements import SUM, Placement, Shard
from tpugraph.analysis.step import DeviceEnds, Outfed, Partitioned, Queues, Results
from tpugraph.ir import Graph
from tpugraph.passes.gather_rows import GatherRows
from tpugraph.support.errors import InvariantError
from tpugraph.tpu.evaluation_split import TIMES


def test_golden_step() -> None:
    check(GatherRows(num_replicas=2), "step", num_replicas=2)


DEVICE = '_tpu_replicate: "cluster"} @/device:TPU_REPLICATED_CORE:0'
STEP = f"""
    count = Test() {{{DEVICE} : int32[]
    score = Test() {{{DEVICE} : float32[2,3]
    loss = Test() : float32[]
    train = NoOp() ^loss ^add
    n = PlaceholderWithDefault(count) {{dtype: int32, shape: [], {TIMES}: 0}} : int32[]
    rows = PlaceholderWithDefault(score) {{dtype: float32, shape: [?,3], {TIMES}: 1}} : float32[?,3]
    seen = VarHandleOp() {{dtype: int32, shape: [], container: "", shared_name: "seen"}} : resource[]
    add = AssignAddVariableOp(seen, n) {{dtype: int32}}
    read = Test(rows)
    """
SCORES = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
ROWS = {"score": Shard(0)}


def gathered(
    text: str = STEP, *, cores: int = 2, leaving: Mapping[str, Placement] = ROWS, beside: Sequence[str] = ()
) -> Graph:
    graph = testing.parse(text)
    graph.keep(DeviceEnds(("count", "score"), tuple(beside)))
    graph.keep(Partitioned(cores, leaving=leaving))
    testing.run_pass(GatherRows(num_replicas=cores), graph, roles=by_hand)
    return graph


def sent(count: int, scores: Sequence[Any] = SCORES) -> list[list[Any]]:
    """What the cores send: each of them the number of true rows of all."""
    return [[np.int32([count])] * len(scores), list(scores)]


@pytest.mark.parametrize("count", [4, 3, 2, 1])
def test_the_padding_of_all_cores_is_cut_off(count: int) -> None:
    graph = gathered()
    np.testing.assert_array_equal(value_of(graph["read"].inputs[0], sent(count)), SCORES.reshape(4, 3)[:count])
    assert value_of(graph["add"].inputs[1], sent(count)) == count


def test_without_a_row_nothing_is_computed_and_nothing_written() -> None:
    graph = gathered()
    assert value_of(graph["read"].inputs[0], sent(0)) is None
    assert value_of(graph["add"].inputs[1], sent(0)) is None
    assert graph["tpugraph/rows/pivot"] in graph["add"].controls
    assert value_of(graph.tensor(graph.result(Results)["some"]), sent(0)) is np.False_
    assert value_of(graph.tensor(graph.result(Results)["rows"]), sent(0)) == 0


def test_several_elements_of_a_row_are_cut_off_together() -> None:
    """What is reshaped to two elements a row has twice as many."""
    graph = gathered(STEP.replace(f"shape: [?,3], {TIMES}: 1", f"shape: [?,3], {TIMES}: 2"))
    np.testing.assert_array_equal(value_of(graph["read"].inputs[0], sent(1)), SCORES[0])


def test_vectors_are_cut_off_too() -> None:
    text = STEP.replace(f"{DEVICE} : float32[2,3]", f"{DEVICE} : float32[2]").replace("[?,3]", "[?]")
    scores = [SCORES[0][0, :2], SCORES[1][0, :2]]
    np.testing.assert_array_equal(value_of(gathered(text)["read"].inputs[0], sent(3, scores)), [0, 1, 6])


@pytest.mark.parametrize(("leaving", "expected"), [({}, SCORES[0]), ({"score": SUM}, SCORES.sum(0))])
def test_what_has_no_rows_is_that_of_the_first_core_or_of_all(leaving: Mapping[str, Placement], expected: Any) -> None:
    text = STEP.replace(f"shape: [?,3], {TIMES}: 1", f"shape: [2,3], {TIMES}: 0")
    np.testing.assert_array_equal(value_of(gathered(text, leaving=leaving)["read"].inputs[0], sent(1)), expected)


def test_one_core_has_nothing_to_put_together() -> None:
    graph = gathered(cores=1)
    assert not graph.of_type("ConcatV2")
    np.testing.assert_array_equal(value_of(graph["read"].inputs[0], sent(1, SCORES[:1])), SCORES[0][:1])


def test_what_the_host_reads_beside_the_rows_keeps_its_readers() -> None:
    graph = gathered(
        f"{STEP}other = PlaceholderWithDefault(loss) {{dtype: float32, shape: []}} : float32[]\nlook = Test(other)"
    )
    assert graph["look"].inputs[0].node is graph["other"]  # no end of the device's part of the step
    assert "rows" not in graph
    assert "n" not in graph


def test_the_report_says_what_leaves_and_how_much() -> None:
    outfed = gathered(cores=4).result(Outfed)
    assert outfed.tensors == {"score": "rows of all cores"}  # how many rows there are is no value of the model
    assert outfed.bytes == 4 * (4 + 2 * 3 * 4)
    assert outfed.enqueue == "tpugraph/outfeed/enqueue"


BESIDE = f"""{STEP}
    words = Test() : string[?]
    all_words = PlaceholderWithDefault(words) {{dtype: string, shape: [?], {TIMES}: 0}} : string[?]
    print = Test(all_words)
    """


def test_what_goes_from_host_to_host_waits_in_a_queue() -> None:
    graph = gathered(BESIDE, cores=3, beside=["words"])
    (name,) = graph.result(Queues).names
    assert graph[name].attr("shared_name") == name
    taken = graph["tpugraph/beside/dequeue"]
    assert taken.inputs[0].node.name == name
    assert taken.device.endswith("CPU:0")
    assert "string" not in {t.dtype.name for t in graph["tpugraph/outfeed/enqueue"].inputs}
    assert taken in graph.ancestors([graph["print"]])


def test_without_such_values_there_is_no_queue() -> None:
    graph = gathered()
    assert graph.kept(Queues) is None
    assert not graph.of_type("FIFOQueueV2", "QueueDequeueV2")


def test_the_device_is_cut_out_before() -> None:
    testing.assert_raises_block(
        testing.run_pass, GatherRows(), testing.parse("x = Test()"), kind=InvariantError,
        words=["before gather-rows", "no node is placed on the device", "run the pass placement"],
    )  # fmt: skip
