"""What is live in a core's memory, counted by hand on small modules in the form that the compilers print."""

from __future__ import annotations

import pytest

from tpugraph.xla import live_buffers, live_memory, scheduled_module
from tpugraph.xla.live_memory import LiveMemory, estimate

KIB = "f32[256]{0}"  # 1,024 bytes
BIG = "f32[1024]{0}"  # 4,096 bytes
ON_CHIP = "f32[256]{0:S(1)}"


def module(*lines: str, called: str = "", head: str = "") -> str:
    """A module whose entry has these instructions, the last one its root."""
    body = [f"  {line}" for line in lines[:-1]] + [f"  ROOT {lines[-1]}"]
    return "\n".join(
        [f"HloModule m, is_scheduled=true{head}", "", called, "ENTRY %main (p: f32[]) -> f32[] {", *body, "}"]
    )


def curve(text: str) -> list[int]:
    """Bytes in HBM at each instruction."""
    return [point.hbm for point in found(text).points]


def found(text: str) -> LiveMemory:
    live = estimate(text, ("given",))
    assert live is not None
    return live


def test_a_tensor_is_live_from_the_instruction_that_makes_it_to_its_last_reader() -> None:
    text = module(
        f"%p = {KIB} parameter(0)",
        f'%a = {BIG} negate(%p), metadata={{op_name="dense/Neg"}}',
        f"%b = {KIB} negate(%a)",
        f"%c = {KIB} add(%b, %p)",
    )
    assert curve(text) == [1024 + 4096, 1024 + 4096 + 1024, 1024 + 1024 + 1024]
    live = found(text)
    assert (live.instructions, live.hbm, live.points[0].node) == (3, 6144, "dense/Neg")
    assert [(tensor.node, tensor.bytes) for tensor in live.held] == [("dense/Neg", 4096), ("", 1024), ("given", 1024)]


def test_names_and_tuples_take_no_memory_and_lengthen_what_they_name() -> None:
    text = module(
        f"%p = {KIB} parameter(0)",
        f"%a = {BIG} negate(%p)",
        f"%t = ({BIG}, {KIB}) tuple(%a, %p)",
        f"%b = {KIB} negate(%p)",
        f"%g = {BIG} get-tuple-element(%t), index=0",
        f"%v = {BIG} bitcast(%g)",
        f"%c = {KIB} add(%v, %b)",
    )
    assert curve(text) == [5120, 6144, 7168]


@pytest.mark.parametrize(
    ("hint", "bytes_"),
    [("", [5120, 9216]), ('backend_config={"aliasing_operands":{"lists":[{"indices":["0","1"]}]}}', [5120, 5120]),
     ("output_to_operand_aliasing={{}: (0, {})}", [5120, 5120])],
)  # fmt: skip
def test_a_result_takes_the_place_of_an_operand_where_the_compiler_says_so(hint: str, bytes_: list[int]) -> None:
    text = module(f"%p = {KIB} parameter(0)", f"%a = {BIG} negate(%p)", f"%b = {BIG} fusion(%a), kind=kLoop, {hint}")
    assert curve(text) == bytes_


def test_an_operand_that_is_read_later_keeps_its_place() -> None:
    hint = 'backend_config={"aliasing_operands":{"lists":[{"indices":["0","1"]}]}}'
    text = module(f"%p = {KIB} parameter(0)", f"%a = {BIG} negate(%p)", f"%b = {BIG} negate(%a), {hint}",
                  f"%c = {KIB} add(%a, %b)")  # fmt: skip
    assert curve(text) == [5120, 9216, 10240]


LOOP = f"""%body (s: f32[]) -> f32[] {{
  %s = ({BIG}, {KIB}, s32[]{{:S(6)}}) parameter(0)
  %w = {BIG} get-tuple-element(%s), index=0
  %i = s32[]{{:S(6)}} get-tuple-element(%s), index=2
  %k = {KIB} get-tuple-element(%s), index=1
  %n = {BIG} negate(%w)
  %d = {BIG} add(%n, %w)
  ROOT %r = ({BIG}, {KIB}, s32[]{{:S(6)}}) tuple(%d, %k, %i)
}}

%cond (s.1: f32[]) -> pred[] {{
  %s.1 = ({BIG}, {KIB}, s32[]{{:S(6)}}) parameter(0)
  %j = s32[]{{:S(6)}} get-tuple-element(%s.1), index=2
  ROOT %less = pred[]{{:S(6)}} compare(%j, %j)
}}
"""


def test_what_a_loop_carries_has_one_place_as_long_as_the_loop() -> None:
    text = module(
        f"%p = {KIB} parameter(0)",
        "%zero = s32[]{:S(6)} constant(0)",
        f"%a = {BIG} negate(%p)",
        f"%t = ({BIG}, {KIB}, s32[]{{:S(6)}}) tuple(%a, %p, %zero)",
        f"%l = ({BIG}, {KIB}, s32[]{{:S(6)}}) while(%t), condition=%cond, body=%body",
        f"%g = {BIG} get-tuple-element(%l), index=0",
        f"%c = {KIB} negate(%g)",
        called=LOOP,
    )
    live = found(text)
    assert live.step == (1, 4)
    assert curve(text) == [5120, 5120, 5120 + 4096, 5120 + 4096, 5120 + 1024]


def test_branches_run_one_after_the_other_and_have_one_result() -> None:
    branch = "%{name} (x: f32[]) -> f32[] {{\n  %x{name} = {kib} parameter(0)\n  ROOT %y{name} = {big} negate(%x{name})\n}}\n"
    called = "".join(branch.format(name=name, kib=KIB, big=BIG) for name in ("one", "two"))
    text = module(f"%p = {KIB} parameter(0)", "%q = pred[]{:S(6)} constant(true)",
                  f"%c = {BIG} conditional(%q, %p, %p), true_computation=%one, false_computation=%two",
                  f"%d = {KIB} negate(%c)", called=called)  # fmt: skip
    assert curve(text) == [5120, 5120, 6144]


def test_a_transfer_to_the_chip_is_there_from_its_start() -> None:
    text = module(
        f"%p = {KIB} parameter(0)",
        f"%s = ({ON_CHIP}, {KIB}, u32[]{{:S(2)}}) copy-start(%p)",
        f"%a = {BIG} negate(%p)",
        f"%d = {ON_CHIP} copy-done(%s)",
        f"%c = {KIB} add(%d, %a)",
    )
    live = found(text)
    assert [point.on_chip for point in live.points] == [1024, 1024, 1024]
    assert [point.hbm for point in live.points] == [1024, 5120, 6144]
    assert live.together == 7168


def test_a_result_in_the_place_of_an_argument_takes_nothing() -> None:
    lines = (f"%p = {KIB} parameter(0)", f"%a = {KIB} negate(%p)", f"%t = ({KIB}) tuple(%a)")
    assert curve(module(*lines)) == [2048]
    assert curve(module(*lines, head=", input_output_alias={ {0}: (0, {}, may-alias) }, entry=x")) == [1024]


def test_a_long_program_has_few_points_and_none_hides_the_peak() -> None:
    lines = [f"%p = {KIB} parameter(0)", f"%a0 = {KIB} negate(%p)"]
    lines += [f"%a{i} = {BIG if i == 1234 else KIB} negate(%a{i - 1})" for i in range(1, 2000)]
    live = found(module(*lines))
    assert live.instructions == 2000
    assert len(live.points) <= live_memory.POINTS
    assert max(point.hbm for point in live.points) == live.hbm == 1024 + 1024 + 4096


@pytest.mark.parametrize(
    "line", ["%p = f32[] parameter(0)", "%n = f32[] negate(%nowhere)", "%c = f32[] call(), to_apply=%none"]
)
def test_a_module_without_an_order_or_of_an_unknown_form_has_no_curve(line: str) -> None:
    text = module(line)
    assert estimate(text.replace("is_scheduled=true", "")) is None
    assert (estimate(text) is None) == ("parameter" not in line)


# ------------------------------------------------------------------ its parts


def test_buffers_that_are_one_piece_of_memory_live_as_long_as_both() -> None:
    tensor = live_memory.Placed("a", "f32[1]", 4, 4)
    first, second = live_buffers.Buffer(tensor, 1, 2), live_buffers.Buffer(tensor, 3, 5)
    live_buffers.join_all([first, None], [second, None])
    assert second.find() is first
    assert (first.start, first.end) == (1, 5)
    assert list(live_buffers.leaves([first, [None, second]])) == [first, second]


def test_a_module_is_read_with_what_lies_in_the_memory_of_an_argument() -> None:
    text = module(
        f"%p = {KIB} parameter(0)",
        f'%a = {BIG} negate(%p), metadata={{op_name="dense/Neg"}}',
        head=", input_output_alias={ {0}: (0, {}, may-alias) }",
    )
    read = scheduled_module.read(text)
    assert read is not None
    assert [(one.name, one.opcode, one.node) for one in read.entry.instructions] == [
        ("p", "parameter", ""),
        ("a", "negate", "dense/Neg"),
    ]
    assert (read.entry.root, read.aliased) == ("a", {0: 0})
    assert scheduled_module.read("HloModule m") is None
