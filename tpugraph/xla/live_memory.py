"""An estimate of what is live in the memory of a core at each instruction of a compiled module.

libtpu says how much memory a program takes and not when, so this counts again: a tensor takes its bytes, with the padding
of its tiles, from the instruction that makes it to the last one that reads it. Arguments are there all the time, and what a
loop carries is there as long as the loop. A result takes the place of an operand where the compiler says that it can
and nothing reads the operand later. What instructions need besides, such as buffers of transfers between cores, is not known
here: the estimate can be below the compiler's own figure, and above it where the compiler found a better order of reuse.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tpugraph.xla.live_buffers import Buffer, Value, join_all, leaves
from tpugraph.xla.memory_layouts import Placed
from tpugraph.xla.scheduled_module import Computation, Instruction, ScheduledModule, Tree, read

POINTS = 300
"""The most points of a curve."""

HELD = 8
"""How many tensors of the peak are named."""

_FORWARDS = frozenset({"bitcast", "get-tuple-element", "optimization-barrier", "parameter", "tuple"})
_HINT = re.compile(r'"indices":\[([^\]]*)\]')
_ALIASING = re.compile(r"\{(\d*)\}: \((\d+), \{\}")


@dataclass(frozen=True)
class LivePoint:
    """What is live while some instructions run: the most of any of them.

    Attributes:
        at: the number of the first of these instructions.
        hbm: bytes in the memory of the core.
        on_chip: bytes in the memory of the chip itself.
        node: the node of the graph whose instruction has the most.
    """

    at: int
    hbm: int
    on_chip: int
    node: str


@dataclass(frozen=True)
class LiveMemory:
    """What is live in the memory of a core while a program runs once, with one step of its loop.

    Attributes:
        instructions: how many run, each of the loop's once.
        step: the first and the last instruction of the loop.
        hbm: bytes in the memory of the core at the instruction that has the most there.
        together: bytes in both memories at the instruction that has the most of both.
        points: the curve, in the order of the schedule.
        held: the largest tensors in the memory of the core where it has the most.
    """

    instructions: int
    step: tuple[int, int]
    hbm: int
    together: int
    points: tuple[LivePoint, ...]
    held: tuple[Placed, ...]


def estimate(text: str, arguments: tuple[str, ...] = ()) -> LiveMemory | None:
    """What is live at each instruction of a module; None where they are in no order, or in a form that is not known here.

    Args:
        text: the module, as the compiler prints it.
        arguments: what to call its arguments.
    """
    try:
        module = read(text)
        return None if module is None else _Walk(module, arguments).run()
    except (
        LookupError,
        ValueError,
    ):  # the form of HLO's text is no promise: a compiler that changes it gives no estimate
        return None


@dataclass
class _Walk:
    """Runs the instructions of a module in order, and notes which buffers they make and read.

    Attributes:
        module: the module.
        arguments: what to call its arguments.
        nodes: the node of each instruction that ran, so their number is the time.
        buffers: all that were made.
        shares: results that may take the place of an operand, with the time.
        step: the first and last instruction of the longest loop outside of others.
    """

    module: ScheduledModule
    arguments: tuple[str, ...]
    nodes: list[str] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    shares: list[tuple[Buffer, Buffer, int]] = field(default_factory=list)
    step: tuple[int, int] = (0, 0)

    def run(self) -> LiveMemory:
        """Run the module once, each loop for one step, and say what was live."""
        given = [self._new(i.shape, self._name_of(i)) for i in _parameters(self.module.entry)]
        result = self._computation(self.module.entry, given)
        self._keep(given)
        self._keep(result)
        for number, argument in self.module.aliased.items():
            join_all(given[argument], result[number] if isinstance(result, list) else result)
        for made, read_, at in self.shares:
            self._share(made.find(), read_.find(), at)
        return self._summary()

    def _name_of(self, parameter: Instruction) -> str:
        number = int(parameter.text)
        return self.arguments[number] if number < len(self.arguments) else f"argument {number}"

    def _keep(self, value: Value) -> None:
        """Arguments and results are there to the end."""
        for leaf in leaves(value):
            leaf.find().end = len(self.nodes)

    def _share(self, made: Buffer, taken: Buffer, at: int) -> None:
        """A result in the place of an operand, which nothing reads later and which is no smaller."""
        alike = made.tensor.on_chip == taken.tensor.on_chip and made.tensor.bytes <= taken.tensor.bytes
        if alike and made.start == at == taken.end:
            taken.join(made)

    # ----------------------------------------------------------------------- instructions

    def _computation(self, computation: Computation, arguments: list[Value]) -> Value:
        """Run the instructions of a computation; gives its result."""
        values: dict[str, Value] = {}
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                values[instruction.name] = arguments[int(instruction.text)]
            else:
                operands = [values[name] for name in instruction.operands]
                values[instruction.name] = self._instruction(instruction, operands)
        return values[computation.root]

    def _instruction(self, instruction: Instruction, operands: list[Value]) -> Value:
        if instruction.opcode in _FORWARDS:
            return _forwarded(instruction, operands)
        if instruction.opcode == "constant":
            return _nothing(instruction.shape)
        self._read(operands)
        if instruction.opcode == "while":
            return self._loop(instruction, operands[0])
        if instruction.opcode in ("call", "conditional"):
            return self._called(instruction, operands)
        if instruction.opcode.endswith("-done"):
            return _done(instruction, operands[0])
        made = self._made(instruction, operands)
        self.nodes.append(instruction.node)
        return made

    def _read(self, values: Iterable[Value]) -> None:
        for value in values:
            for leaf in leaves(value):
                buffer = leaf.find()
                buffer.end = max(buffer.end, len(self.nodes))

    def _loop(self, instruction: Instruction, carried: Value) -> Value:
        """One step of a loop, which keeps what it carries in one place."""
        begin = len(self.nodes)
        (condition,) = instruction.called("condition")
        (body,) = instruction.called("body")
        self._computation(self.module.computations[condition], [carried])
        result = self._computation(self.module.computations[body], [carried])
        join_all(carried, result)
        self._read([carried])
        if len(self.nodes) - begin > self.step[1] - self.step[0]:
            self.step = begin, len(self.nodes)
        return carried

    def _called(self, instruction: Instruction, operands: list[Value]) -> Value:
        """A call, or the branches of a conditional one after the other, whose results are one."""
        if instruction.opcode == "call":
            (name,) = instruction.called("to_apply")
            return self._computation(self.module.computations[name], operands)
        names = instruction.called("branch_computations") or [
            *instruction.called("true_computation"), *instruction.called("false_computation")]  # fmt: skip
        result = self._new(instruction.shape, instruction.node)
        for name, operand in zip(names, operands[1:], strict=True):
            join_all(result, self._computation(self.module.computations[name], [operand]))
            self._read(operands)
        return result

    def _made(self, instruction: Instruction, operands: list[Value]) -> Value:
        """What an instruction makes, with operands in whose place the results may be."""
        if instruction.opcode.endswith("-start") and instruction.opcode != "all-reduce-start":
            return self._started(instruction, operands)
        made = self._new(instruction.shape, instruction.node)
        if '"ConcatBitcast"' in instruction.rest:  # its operands were made side by side
            for operand in operands:
                join_all(made, operand)
        results = made if isinstance(made, list) else [made]
        for at_operand, at_result in _hints(instruction, len(operands)):
            result, operand = results[at_result], operands[at_operand]
            if isinstance(result, Buffer) and isinstance(operand, Buffer):
                self.shares.append((result, operand, len(self.nodes)))
        return made

    def _started(self, instruction: Instruction, operands: list[Value]) -> Value:
        """A transfer that goes on beside other instructions: its operands, its destination, and a flag."""
        shapes = instruction.shape if isinstance(instruction.shape, list) else []
        if instruction.opcode == "copy-start":
            return [self._new(shapes[0], instruction.node), operands[0], None]
        rest = [self._new(shape, instruction.node) for shape in shapes[1:]]
        return [operands[0] if len(operands) == 1 else operands, *rest]

    def _new(self, shape: Tree, node: str) -> Value:
        if isinstance(shape, list):
            return [self._new(inner, node) for inner in shape]
        if shape is None:
            return None
        buffer = Buffer(replace(shape, node=node), len(self.nodes), len(self.nodes))
        self.buffers.append(buffer)
        return buffer

    # ----------------------------------------------------------------------- the curve

    def _summary(self) -> LiveMemory:
        """The curve and its peak."""
        apart = {id(found): found for found in (buffer.find() for buffer in self.buffers)}.values()
        hbm = self._curve(b for b in apart if "S(" not in b.tensor.shape)
        on_chip = self._curve(b for b in apart if b.tensor.on_chip)
        top = max(range(len(hbm)), key=hbm.__getitem__)
        held = [b.tensor for b in apart if "S(" not in b.tensor.shape and b.start <= top <= b.end]
        held.sort(key=lambda tensor: (-tensor.bytes, tensor.node))
        together = max(map(sum, zip(hbm, on_chip, strict=True)))
        points = self._points(hbm, on_chip)
        return LiveMemory(len(hbm), self.step, hbm[top], together, points, tuple(held[:HELD]))

    def _curve(self, buffers: Iterable[Buffer]) -> list[int]:
        """The bytes of buffers at each instruction."""
        changes = [0] * (len(self.nodes) + 2)
        for buffer in buffers:
            changes[buffer.start] += buffer.tensor.bytes
            changes[buffer.end + 1] -= buffer.tensor.bytes
        return list(itertools.accumulate(changes))[: max(1, len(self.nodes))]

    def _points(self, hbm: list[int], on_chip: list[int]) -> tuple[LivePoint, ...]:
        """At most POINTS points, none of which hides a peak."""
        width = -(-len(hbm) // POINTS)
        found = []
        for first in range(0, len(hbm), width):
            bucket = range(first, min(first + width, len(hbm)))
            most = max(bucket, key=hbm.__getitem__)
            node = self.nodes[most] if self.nodes else ""
            found.append(LivePoint(first, hbm[most], max(on_chip[at] for at in bucket), node))
        return tuple(found)


def _parameters(computation: Computation) -> list[Instruction]:
    found = [i for i in computation.instructions if i.opcode == "parameter"]
    return sorted(found, key=lambda i: int(i.text))


def _nothing(shape: Tree) -> Value:
    """A constant, which is a part of the code."""
    return [_nothing(inner) for inner in shape] if isinstance(shape, list) else None


def _forwarded(instruction: Instruction, operands: list[Value]) -> Value:
    """What only names operands anew."""
    if instruction.opcode == "tuple":
        return operands
    (whole,) = operands
    if instruction.opcode != "get-tuple-element":
        return whole
    return whole[instruction.number("index")] if isinstance(whole, list) else None


def _done(instruction: Instruction, started: Value) -> Value:
    """What a transfer has brought."""
    if not isinstance(started, list) or instruction.opcode == "all-reduce-done":
        return started
    return started[0] if instruction.opcode == "copy-done" else started[1]


def _hints(instruction: Instruction, operands: int) -> Iterator[tuple[int, int]]:
    """Pairs of an operand and a result that the compiler takes for able to share memory."""
    for result, operand in _ALIASING.findall(instruction.rest.partition("output_to_operand_aliasing=")[2][:400]):
        yield int(operand), int(result or 0)
    if instruction.opcode == "dynamic-update-slice":
        yield 0, 0
    for text in _HINT.findall(instruction.rest):
        numbers = sorted(int(number.strip('"')) for number in text.split(",") if number)
        results = [number - operands for number in numbers if number >= operands]
        yield from ((number, result) for number in numbers for result in results if number < operands)
