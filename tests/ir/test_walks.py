"""Ways through a graph: what a value is handed on from, who shares a handle, what is reached by steps."""

from tpugraph import ops, testing
from tpugraph.ir.walks import reached, readers, source_of, variable_of

CHAIN = """
    x = Test()
    one = Identity(x:1) {T: float32}
    two = StopGradient(one) ^x {T: float32}
    cast = Cast(two) {SrcT: float32, DstT: int32, Truncate: false}
    pair = IdentityN(x, cast) {T: (float32; int32)}
    """

HANDLES = """
    v = VarHandleOp() {dtype: float32, shape: [], shared_name: "v", container: ""}
    alias = Identity(v) {T: resource}
    enter = Enter(alias) {T: resource, frame_name: "loop", is_constant: true, parallel_iterations: 1}
    read = ReadVariableOp(enter) {dtype: float32}
    other = ReadVariableOp(v) {dtype: float32}
    behind = Neg(read) {T: float32}
    ref = VariableV2() {dtype: float32, shape: [], shared_name: "", container: ""}
    assign = Assign(ref, behind) {T: float32, use_locking: true, validate_shape: true}
    """


def test_the_source_is_behind_identities() -> None:
    graph = testing.parse(CHAIN)
    assert source_of(graph["two"].out()) == graph.tensor("x:1")
    assert source_of(graph["cast"].out()) == graph["cast"].out()
    assert source_of(graph["cast"].out(), ops.IDENTITIES | {"Cast"}) == graph.tensor("x:1")


def test_an_identity_of_several_values_hands_on_the_one_asked_for() -> None:
    graph = testing.parse(CHAIN)
    assert source_of(graph["pair"].out(1)) == graph["cast"].out()
    assert source_of(graph["pair"].out(0)) == graph["x"].out()


def test_a_condition_stops_the_way_back() -> None:
    graph = testing.parse(CHAIN)
    assert source_of(graph["two"].out(), where=lambda node: not node.controls) == graph["two"].out()


def test_a_circle_of_identities_has_an_end() -> None:
    graph = testing.parse(CHAIN)
    graph.set_input(graph["one"], 0, graph["two"].out())
    assert source_of(graph["two"].out()).node.name in ("one", "two")


def test_a_variable_is_behind_its_aliases_and_writes_of_its_reference() -> None:
    graph = testing.parse(HANDLES)
    assert variable_of(graph["enter"].out()) is graph["v"]
    assert variable_of(graph["assign"].out()) is graph["ref"]
    assert variable_of(graph["read"].out()) is None
    assert variable_of(graph["enter"].out(), ops.IDENTITIES) is None


def test_readers_of_a_handle_stop_at_what_takes_the_value() -> None:
    graph = testing.parse(HANDLES)
    assert {node.name for node in readers(graph["v"])} == {"alias", "enter", "read", "other"}
    assert {node.name for node in readers(graph["v"], through=())} == {"alias", "other"}


def test_each_thing_is_reached_once_and_asked_once() -> None:
    asked: list[int] = []

    def following(number: int) -> list[int]:
        asked.append(number)
        return [number // 2, number // 3]

    assert list(reached([12], following)) == [12, 6, 4, 2, 1, 0, 3]
    assert sorted(asked) == sorted(set(asked))
