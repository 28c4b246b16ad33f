from models import (
    check,
)
from tpugraph.analysis.step import Partitioned
from tpugraph.passes.partition import Partition

TWO = Partition(num_replicas=2)


def test_golden() -> None:
    assert check(TWO, "step", num_replicas=2).result(Partitioned).rows == 2
    check(TWO, "clip", num_replicas=2)
