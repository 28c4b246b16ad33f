"""Ties between dimensions, and between them and the elements of shape constants: a union-find with two fixed roots."""

from __future__ import annotations

from typing import Any

from tpugraph.ir import Node, Tensor

Key = tuple[str, Tensor, int]  # ("d", tensor, axis) or ("v", tensor, index)
BATCH: Any = ("batch",)
FIXED: Any = ("fixed",)

_LONGEST_VECTOR = 16


class Ties:
    """What was tied together: dimensions of tensors, elements of small integer vectors.

    Attributes:
        batch: the batch size that is written into the graph.
        conflicts: nodes that tie what scales with the batch to what does not.
        where: the node whose ties are being made, or None.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.conflicts: list[Node] = []
        self.where: Node | None = None
        self._parent: dict[Any, Any] = {}

    def find(self, key: Any) -> Any:
        """The root that a key is tied to."""
        root = key
        while (up := self._parent.get(root, root)) is not root:
            root = up
        while (up := self._parent.get(key, key)) is not root and key is not root:
            self._parent[key] = root
            key = up
        return root

    def unite(self, a: Any, b: Any) -> None:
        """Tie two keys, or a key to one of the roots."""
        x, y = self.find(a), self.find(b)
        if x is y or x == y:
            return
        if x in (BATCH, FIXED):
            x, y = y, x
        if x in (BATCH, FIXED):
            if self.where is not None:
                self.conflicts.append(self.where)
            return
        self._parent[x] = y

    def dims(self, a: Tensor, i: int, b: Tensor, j: int) -> None:
        """Tie dimension ``i`` of one tensor to dimension ``j`` of another, where they are as large."""
        x, y = a.shape, b.shape
        if x is None or y is None:
            return
        i, j = i % max(len(x), 1), j % max(len(y), 1)
        if i < len(x) and j < len(y) and x[i] == y[j] and x[i] != 1:
            self.unite(("d", a, i), ("d", b, j))

    def same(self, a: Tensor, b: Tensor) -> None:
        """Two tensors of one shape."""
        if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
            for axis in range(len(a.shape)):
                self.dims(a, axis, b, axis)

    def values(self, a: Tensor, b: Tensor) -> None:
        """Two vectors with the same elements."""
        if is_vector(a) and is_vector(b):
            for index in range(min(length(a), length(b))):
                self.unite(("v", a, index), ("v", b, index))

    def named_dims(self, sizes: Tensor, out: Tensor) -> None:
        """A vector holds the dimensions of a tensor."""
        for axis in range(len(out.shape or ())):
            self.unite(("v", sizes, axis), ("d", out, axis))


def is_vector(tensor: Tensor) -> bool:
    """Whether elements of a tensor are told apart: whole numbers, few of them."""
    shape = tensor.shape
    whole = tensor.dtype.name in ("int32", "int64")
    return whole and shape is not None and len(shape) <= 1 and length(tensor) <= _LONGEST_VECTOR


def length(tensor: Tensor) -> int:
    """Elements of a vector, or 1."""
    return int((tensor.shape or (1,))[0] or 0)


def vector_value(tensor: Tensor) -> list[int] | None:
    """The elements of a constant, or None."""
    return [int(v) for v in tensor.node.attr("value").ravel()] if tensor.node.op == "Const" else None
