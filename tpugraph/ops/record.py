"""The record of an op type: every fact that the compiler uses about the op type, in one place.

The pages of this package (``arithmetic``, ``matrix``, ...) make the records, each with one call of a registrar::

    op = page("matrix")
    op("Cholesky MatrixInverse", dims="...II -> ...II")

**Dimension signatures** (``dims``) say along which dimensions an op computes independently. A signature lists the
operands, then ``->``, then the outputs, separated by commas. Each is a string with one character per dimension:

- A letter is a *factor*. The operands that carry the letter can be sliced along it: the op then makes the same slice of
  each output that carries the letter. An output without the letter is the sum over the slices (or what ``reduce_op``
  says). So ``ik, kj -> ij`` is a matrix product: independent along ``i`` and ``j``, a sum over ``k``.
- ``*`` is a dimension that the op takes whole. So is a capital letter, which has one size wherever it appears: a softmax,
  ``...C -> ...C``, has as many results as inputs along ``C`` and needs them all.
- ``...`` stands for any number of leading dimensions, which broadcast against each other from the right: an operand whose
  size is 1 there is not sliced. Each of them is a factor; an output without ``...`` is the sum over all of them.
- ``-`` is an operand or output of which the signature says nothing: axes, shapes, handles, scalars, statistics.
- Nothing between two commas is a scalar that is data: ``... -> `` adds up all elements.

Words stand for signatures of any rank. ``elementwise``: all operands broadcast together, the output likewise. The
other words (:data:`WORDS`) are read with the values of operands that name dimensions, and with static shapes:
``reduce`` (operand 1 names the dimensions of operand 0 that are reduced as ``reduce_op`` says), ``permute`` (operand
1 is the order of the dimensions), ``insert`` (operand 1 is the index of a new one), ``drop`` (removes ``squeeze_dims``,
or all of size 1), ``along`` and ``concat`` (the operand ``axis`` names dimensions that are taken whole, and kept),
``like`` (a dimension of equal size in operand and output is unaffected), ``sliced`` (a dimension that a strided slice
takes whole is unaffected). A signature that depends on attributes or ranks is a function of a :class:`Call`. None is the
conservative answer: everything is needed whole. A letter has one size. Where the shapes of a node contradict that, the letter
counts as ``*`` (the input channels of a grouped convolution, for example; or operands with no elements).

**Linearity** (``linear``) says when an op may run before a sum over cores instead of after it. ``all``: linear in all
operands together, as ``Add`` is. ``each``: linear in each operand while the others are the same on every core, as
``Mul`` is. Otherwise the operands are listed by number: ``0,2`` is linear in operand 0 and in operand 2, each alone;
``1+2`` is linear in operands 1 and 2 together, as ``SelectV2`` is. Operands and outputs marked ``-`` do not count. The
claims are about real and complex numbers: overflow, rounding, infinities and NaN are left out of account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tpugraph.ops.facts import Batching, Contents, Ordering, Refusal, Trusted, Write


@dataclass(frozen=True)
class Call:
    """The facts about one use of an op that a rule may depend on.

    Attributes:
        attr: returns an attribute of the node by name, or the second argument as default.
        ranks: the rank of each operand, None where unknown.
    """

    attr: Callable[[str, Any], Any]
    ranks: tuple[int | None, ...]


Rule = str | Callable[[Call], str | None] | None
"""A fact in the notation above: fixed, or computed for one use; None for no claim."""


WORDS = frozenset({"reduce", "permute", "insert", "drop", "along", "concat", "like", "sliced"})
"""Signatures that depend on operand values."""


class Signature(NamedTuple):
    """A parsed dimension signature: one string per operand and one per output, ``-`` for no claim."""

    operands: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Op:
    """Every fact that the compiler has about one op type.

    Attributes:
        name: the op type, such as ``MatMul``.
        family: the page that holds the record.
        role: the kind of the op, by which passes look it up, such as ``merge`` or ``read``.
        dims: the dimension signature, see above.
        linear: the operands in which the op is linear, see above.
        reduce_op: what joins the slices of a dimension that is reduced; None where nothing does.
        computes: the function of NumPy arrays that an elementwise op computes of its operands; in what dtype, the node says.
        axis: the operand that names the dimensions along which the op works; -1 is the last.
        differentiable: False where TensorFlow passes no gradient through the op.
        fused: whether the emulator may put the op into the one XLA computation of a small dense step.
        backward: whether the op is part of backpropagation and not of gradient processing: raw gradients are its outputs.
        alias: ``handle`` if the output is the same variable, resource or buffer as the first input; ``memory`` if the
            output may share the buffer of the first input.
        writes: which variables the op writes, and with what.
        effects: False for an op that may as well run twice or not at all, though TensorFlow calls it stateful; None asks TensorFlow.
        resource_op: the op on resource variables that does what this op on reference variables does.
        dense_op: the dense write that does to each row what this sparse one does to the rows it is given.
        stateless_op: the op without state that draws from the distribution of this random op.
        stack: whether the op works on the stacks on which the gradient of a loop keeps values.
        contents: what the op does to a stack, an array or a list of tensors.
        bounded: whether the op makes a list that a loop fills, whose size XLA must know.
        host_only: whether the op runs on a host only, whatever its dtypes.
        file_operand: the operand that names files which the op opens.
        reach: what the op does outside of TensorFlow's own memory when it runs: ``reads`` or ``writes`` files, ``prints``,
            ``calls`` Python, ``ends`` the process.
        batching: how a dataset op batches.
        elements: of a dataset op whose elements are those of another: all of them (``same``), a choice or another order
            (``chosen``), or kept (``cached``).
        measures: whether a dataset op only measures the stages before it.
        rows_operand: the operand that says how many rows the output has.
        shaped_by: the operand that is the shape of the output.
        sizes: the other operands that hold sizes of the output, or bounds of what is taken: numbers of rows among them are
            those of a core or of the whole batch, as the output is.
        ordering: which comparison of two numbers the op is.
        constants: the operands whose value XLA must know when it compiles, where it has a kernel; -1 is the last. A
            function where lists of operands make them depend on the number of operands.
        dtypes: the only dtypes that the op takes, where a TPU decides that.
        tpu_lacks: dtypes that a TPU has no op for though XLA takes them on a CPU; seen with libtpu 0.0.52.
        xla_refuses: an attribute value that XLA refuses.
        trusted: preconditions that TensorFlow's shape function does not check.
        instead: the replacement for an op that XLA has no kernel for.
        apart: for an op that breaks the dataflow from the input to the variables: its effect, and the fix.
    """

    name: str
    family: str
    role: str | None = None
    dims: Rule = None
    linear: Rule = None
    reduce_op: Literal["sum", "mean", "max", "min", "prod", "all", "any", "norm"] | None = "sum"
    computes: Callable[..., Any] | None = None
    axis: int | None = None
    differentiable: bool = True
    fused: bool = False
    backward: bool = False
    alias: Literal["handle", "memory"] | None = None
    writes: Write | None = None
    effects: bool | None = None
    resource_op: str | None = None
    dense_op: str | None = None
    stateless_op: str | None = None
    stack: bool = False
    contents: Contents | None = None
    bounded: bool = False
    host_only: bool = False
    file_operand: int | None = None
    reach: Literal["reads", "writes", "prints", "calls", "ends"] | None = None
    batching: Batching | None = None
    elements: Literal["same", "chosen", "cached"] | None = None
    measures: bool = False
    rows_operand: int | None = None
    shaped_by: int | None = None
    sizes: tuple[int, ...] | Callable[[int], Iterable[int]] = ()
    ordering: Ordering | None = None
    constants: tuple[int, ...] | Callable[[int], Iterable[int]] = ()
    dtypes: frozenset[str] | None = None
    tpu_lacks: frozenset[str] = frozenset()
    xla_refuses: Refusal | None = None
    trusted: Trusted | None = None
    instead: str | None = None
    apart: tuple[str, str] | None = None

    def signature(self, call: Call) -> Signature | None:
        """The dimension signature of one use of the op; None where there is none, or for one of :data:`WORDS`."""
        dims = self.dims(call) if callable(self.dims) else self.dims
        if dims is None or dims in WORDS:
            return None
        if dims == "elementwise":
            return Signature(("...",) * len(call.ranks), ("...",))
        operands, outputs = (tuple(part.strip() for part in side.split(",")) for side in dims.split("->"))
        return Signature(operands, outputs)

    def constant_operands(self, count: int) -> tuple[int, ...]:
        """Which of so many operands XLA must know when it compiles."""
        found = self.constants(count) if callable(self.constants) else self.constants
        return tuple(i % count for i in found) if count else ()

    def size_operands(self, count: int) -> tuple[int, ...]:
        """The operands that hold sizes, of a node with so many operands."""
        sizes = tuple(self.sizes(count) if callable(self.sizes) else self.sizes)
        told = (index for index in (self.rows_operand, self.shaped_by) if index is not None)
        return tuple(index for index in (*told, *sizes) if index < count)

    def axis_operand(self, count: int) -> int | None:
        """The operand that names dimensions, of a node with so many operands."""
        return None if self.axis is None or not count else self.axis % count

    def data_operands(self, count: int) -> list[int]:
        """The operands that hold elements, of a node with so many: neither sizes nor numbers of dimensions."""
        told = {*self.size_operands(count), self.axis_operand(count)}
        return [index for index in range(count) if index not in told]

    def linear_in(self, call: Call) -> tuple[frozenset[int], ...]:
        """The sets of operands in which one use of the op is linear: in those of a set together, the others fixed."""
        linear = self.linear(call) if callable(self.linear) else self.linear
        if linear is None:
            return ()
        signature = self.signature(call)
        silent = {i for i, dims in enumerate(signature.operands) if dims == "-"} if signature else set()
        data = [i for i in range(len(call.ranks)) if i not in silent]
        if linear == "all":
            return (frozenset(data),)
        if linear == "each":
            return tuple(frozenset({i}) for i in data)
        return tuple(frozenset(int(i) for i in together.split("+")) for together in linear.split(","))


_RECORDS: dict[str, Op] = {}


def op(names: str, **facts: Any) -> None:
    """Register one record for each of the op types, whose names are separated by spaces.

    Raises:
        ValueError: if an op type has a record already.
    """
    for name in names.split():
        if name in _RECORDS:
            raise ValueError(f"the op type {name} has a record already, on the page {_RECORDS[name].family}")
        _RECORDS[name] = Op(name, **facts)


def page(family: str, **common: Any) -> Callable[..., None]:
    """A registrar: :func:`op` with the family and the facts that several ops of the page have in common."""

    def register(names: str, **facts: Any) -> None:
        op(names, **{"family": family, **common, **facts})

    return register


def records() -> Mapping[str, Op]:
    """All records by name of the op type."""
    return _RECORDS


# --------------------------------------------------------------------------- rules that several pages use

LETTERS = "abcdefgh"


def letters(rank: int | None, first: int = 0) -> str | None:
    """As many letters as an operand has dimensions, or None where the number is not known or too large."""
    return None if rank is None or first + rank > len(LETTERS) else LETTERS[first : first + rank]


def floating(linear: str, attribute: str = "T") -> Rule:
    """Linear where the dtype is real or complex: integer division rounds."""
    return lambda call: None if "int" in getattr(call.attr(attribute, None), "name", "float") else linear


def images(dims: str) -> Rule:
    """The signature of an op on images ``n...c``: channels last as written, or behind ``n`` if ``data_format`` says so."""

    def moved(part: str) -> str:
        part = part.strip()
        return f"n{part[-1]}{part[1:-1]}" if part.startswith("n") and len(part) > 3 else part

    first = "->".join(",".join(moved(part) for part in side.split(",")) for side in dims.split("->"))
    formats = {"NHWC": dims, "NDHWC": dims, "NCHW": first, "NCDHW": first}
    return lambda call: formats.get(call.attr("data_format", "NHWC"))
