import pytest

from models import check
from tpugraph import testing
from tpugraph.analysis import in_cluster
from tpugraph.passes.replicate import Replicate


def test_golden_step() -> None:
    graph = check(Replicate(num_replicas=2), "step", num_replicas=2, iterations_per_loop=3)
    roots = [n for n in graph if in_cluster(n) and not n.inputs and n.op != "TPUReplicateMetadata"]
    assert all(n.controls for n in roots), "a root of the cluster waits for the metadata or for the loop"


DEVICE = '_tpu_replicate: "cluster"} @/device:TPU_REPLICATED_CORE:0'


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"late = Test(limit) {{{DEVICE} : int32[]\nlimit = Test() : int32[]", ["fed_by_infeed", "reads 'limit'", "pass infeed"]),
        (f"y = Test() {{{DEVICE} : int32[]\nread = Test(y)", ["fed_to_outfeed", "reads 'y'", "pass outfeed"]),
    ],
)  # fmt: skip
def test_the_host_and_the_device_are_apart_before(line: str, words: list[str]) -> None:
    testing.assert_raises_block(testing.run_pass, Replicate(), testing.parse(line), words=["before replicate", *words])
