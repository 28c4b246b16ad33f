from evaluating import check

from tpugraph.passes.gather_rows import GatherRows


def test_golden_step() -> None:
    check(GatherRows(num_replicas=2), "step", num_replicas=2)
