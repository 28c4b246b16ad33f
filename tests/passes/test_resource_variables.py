import pytest

from models import by_hand, check
from tpugraph import testing
from tpugraph.passes.resource_variables import ResourceVariables


def test_golden_step() -> None:
    check(ResourceVariables(), "step", after=False)


@pytest.mark.parametrize("case", ["average", "assign_output", "ref_switch"])
def test_golden_order(case: str) -> None:
    """The average is of the value after the update and the loss of that before; a value assigned is read behind the writes."""
    check(ResourceVariables(), case, find=by_hand, after=False)


def test_resource_variables_are_left_alone() -> None:
    text = """
        w = VarHandleOp() {dtype: float32, shape: []}
        read = ReadVariableOp(w) {dtype: float32}
        loss = Test(read)
        train = NoOp() ^loss
        """
    testing.check_pass(ResourceVariables(), text, text, edits="+0 -0 ~0", roles=by_hand)


def test_a_read_beside_a_branch_comes_before_the_write_in_it() -> None:
    text = """
        w = VarHandleOp() {dtype: float32, shape: []}
        c = Const() {dtype: bool, value: true}
        two = Const() {dtype: float32, value: 2.0}
        read = ReadVariableOp(w) {dtype: float32}
        loss = Test(read)
        side = Switch(two, c) {T: float32}
        write = AssignVariableOp(w, side:1) {dtype: float32}
        train = NoOp() ^loss ^write
        """
    graph = testing.parse(text)
    testing.run_pass(ResourceVariables(), graph, roles=by_hand)
    assert graph["write"].controls == (graph["read"],)
