"""Replaces the cluster's stateful random ops, whose stream lives in a kernel, by stateless ones.

An op that draws the same values on all cores, once per step, draws the numbers of TensorFlow's kernel. For the others the key is
the node's seed, and the counter is the step and, for values that differ between cores, the core. The seed of the call is added to
both keys. So a run is reproducible for a graph, a seed and a number of cores.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import analysis, ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.trip_counts import steps_of
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library
from tpugraph.ir.builder import Builder
from tpugraph.ir.conditionals import sides
from tpugraph.ir.loops import carried, frames_around
from tpugraph.support.errors import ConversionError
from tpugraph.xla.cut_cluster import Cluster, core_number

_INT32 = attrs.dtype("int32")
_STRIDE = 65_599  # spreads the steps of a loop over those of the loop around it


def own_streams(found: Cluster) -> tuple[Tensor, list[str]]:
    """Make the random ops stateless; returns the argument for the seed, int32 [2], and the names of ops with a stream of XLA."""
    graph = found.graph
    seed = Builder(graph, "tpugraph/argument", marks={CLUSTER_ATTR: CLUSTER}).placeholder(_INT32, (2,), name="seed")
    chosen = {node: varies for node, varies in found.streams.items() if node.op in ops.STATELESS and node in graph}
    own = {node: node.origin or node.name for node in found.streams if node in graph}
    if not chosen:
        return seed, [*own.values()]
    counters, frame_of, branches = _Counters(found, seed), analysis.frames(graph), sides(graph)
    for node, varies in chosen.items():
        frame, of_core = frame_of[node], varies and found.num_replicas > 1
        if frame == found.loop.frame and not of_core and not branches.get(node) and _is_known(node):
            counters.draw_as_kernel(node)
            del own[node]
        else:
            _make_stateless(graph, node, counters.key(node, frame), counters.draw(frame, of_core))
    return seed, [*own.values()]


def _is_known(node: Node) -> bool:
    """Whether the numbers of a node's kernel can be computed."""
    kind, shape = node.output(0)
    fixed = shape is not None and None not in shape
    return fixed and kind.name in _KERNELS.get(node.op, ((), None))[0] and bool(node.attr("seed") or node.attr("seed2"))


class _Counters:
    """Keys and counters, as tensors of the frame that draws."""

    def __init__(self, found: Cluster, seed: Tensor) -> None:
        self.graph = found.graph
        self._make = _maker(found.graph)
        self.found = found
        self._frame_of, self._around = analysis.frames(found.graph), frames_around(found.graph)
        self._key = self._element(seed, 0)
        self._first = self._element(seed, 1)
        self._made: dict[tuple[str, str], Tensor] = {}

    def key(self, node: Node, frame: str) -> Tensor:
        """The seed of the call and of the node."""
        named = f"{node.attr('seed')},{node.attr('seed2')}" if node.attr("seed") or node.attr("seed2") else node.name
        own = self._constant(zlib.crc32(named.encode()) & 0x7FFFFFFF, frame)
        return self._add("AddV2", [self._entered(self._key, frame, "key"), own])

    def draw(self, frame: str, varies: bool) -> Tensor:
        """The number of the step, and of the core where the values vary."""
        step = self._step(frame)
        if not varies:
            return step
        cores = self._constant(self.found.num_replicas, frame)
        scaled = self._add("Mul", [step, cores])
        return self._add("AddV2", [scaled, self._entered(self._core(), frame, "core")])

    def draw_as_kernel(self, node: Node) -> None:
        """Call a function that draws the numbers of a node's kernel in this step."""
        frame = self.found.loop.frame
        inputs = [self._entered(self._key, frame, "key"), self._step(frame), *node.inputs[1:]]
        with tf.Graph().as_default():
            specs = [tf.TensorSpec((), tensor.dtype.name) for tensor in inputs]
            traced = tf.function(partial(_as_kernel, node)).get_concrete_function(*specs).function_def
        function = attrs.Func(function_library.put(self.graph, "draw", traced))
        attributes = {"Tin": [tensor.dtype for tensor in inputs], "Tout": [node.out().dtype], "f": function}
        self.graph.retype(node, "PartitionedCall", inputs=inputs, attrs=attributes)

    def _core(self) -> Tensor:
        if ("", "core") not in self._made:
            self._made["", "core"] = core_number(self.graph)
        return self._made["", "core"]

    def _step(self, frame: str) -> Tensor:
        if not frame:
            return self._first
        if (frame, "step") not in self._made:
            around = self._around[frame]
            number = self.found.loop.number if frame == self.found.loop.frame else self._number(frame)
            outer = self._step(around)
            if around:
                outer = self._add("Mul", [outer, self._constant(_STRIDE, around)])
            self._made[frame, "step"] = self._add("AddV2", [self._make.enter(outer, frame), number])
        return self._made[frame, "step"]

    def _number(self, frame: str) -> Tensor:
        """The counter of an inner loop."""
        for merge in self.graph.of_type(*ops.MERGE):
            counts = self._frame_of.get(merge) == frame and merge.out().dtype == _INT32 and steps_of(merge.out())
            if counts and (found := carried(merge)) is not None:
                return found.switches[0].out(1)
        raise ConversionError("random values are drawn in a loop that counts nothing", node=f"loop '{frame}'",
                              fix="carry a counter that grows by 1 in the loop")  # fmt: skip

    def _entered(self, tensor: Tensor, frame: str, name: str) -> Tensor:
        """A value from outside of all loops, inside a frame."""
        if not frame:
            return tensor
        if (frame, name) not in self._made:
            outer = self._entered(tensor, self._around[frame], name)
            self._made[frame, name] = self._make.enter(outer, frame)
        return self._made[frame, name]

    def _element(self, seed: Tensor, index: int) -> Tensor:
        value, axis = self._constant(index, ""), self._constant(0, "")
        return self._make.add("GatherV2", [seed, value, axis], (), batch_dims=0)

    def _constant(self, value: int, frame: str) -> Tensor:
        pivot = [self._step(frame).node] if frame else []
        return self._make.constant(np.int32(value), name="Const", controls=pivot)

    def _add(self, op: str, inputs: list[Tensor]) -> Tensor:
        return self._make.add(op, inputs, ())


_PHILOX = 1
_RESERVED = 256  # blocks of the stream that a kernel takes for each element


def _as_kernel(node: Node, key: tf.Tensor, step: tf.Tensor, *limits: tf.Tensor) -> tf.Tensor:
    """Draw as a node's kernel in one of its calls: words of Philox as in philox_random.h, numbers as in random_distributions.h."""
    shape = [int(d or 0) for d in node.out().shape or ()]
    own, high = (tf.constant(node.attr(name) % 2**64, tf.uint64) for name in ("seed", "seed2"))
    low = tf.cast(step, tf.uint64) * tf.constant(math.prod(shape) * _RESERVED, tf.uint64)
    stream = {"key": [tf.cast(key, tf.uint64) + own], "alg": _PHILOX, "counter": tf.stack([low, high])}
    return _KERNELS[node.op][1](shape, stream, *limits)


def _integers(shape: list[int], stream: dict[str, Any], low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomUniformIntV2(shape=shape, minval=low, maxval=high, **stream)


def _uniform(shape: list[int], stream: dict[str, Any]) -> tf.Tensor:
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(shape=shape, dtype=tf.uint32, **stream)
    return tf.bitcast(bits & 0x7FFFFF | 0x3F800000, tf.float32) - 1.0


def _normal(shape: list[int], stream: dict[str, Any]) -> tf.Tensor:
    """Box-Muller on pairs of uniform numbers."""
    size = math.prod(shape)
    unit = _uniform([-(-size // 2), 2], stream)
    radius, angle = tf.sqrt(-2.0 * tf.math.log(tf.maximum(unit[:, 0], 1e-7))), 2 * math.pi * unit[:, 1]
    pairs = tf.stack([tf.sin(angle) * radius, tf.cos(angle) * radius], axis=1)
    return tf.reshape(tf.reshape(pairs, [-1])[:size], shape)


_KERNELS: dict[str, tuple[tuple[str, ...], Callable[..., tf.Tensor]]] = {
    "RandomUniform": (("float32",), _uniform),
    "RandomStandardNormal": (("float32",), _normal),
    "RandomUniformInt": (("int32", "int64"), _integers),
}
"""Ops whose kernel computes each element from one or two words of its stream: its dtypes, and the same in stateless ops."""


def _make_stateless(graph: Graph, node: Node, key: Tensor, draw: Tensor) -> None:
    seed = _maker(graph).add("Pack", [key, draw], (2,), axis=0)
    shape, *limits = node.inputs
    kind = node.attr("Tout" if node.has_attr("Tout") else "dtype")
    attributes = {"dtype": kind, "T": shape.dtype, "Tseed": _INT32}
    graph.retype(node, ops.STATELESS[node.op], inputs=[shape, seed, *limits], attrs=attributes)


def _maker(graph: Graph) -> Builder:
    return Builder(graph, "tpugraph/stream", marks={CLUSTER_ATTR: CLUSTER})
