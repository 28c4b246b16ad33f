"""Replaces the cluster's stateful random ops, whose stream lives in a kernel, by stateless ones.

The key is made of the node's seed and the seed of the call; the counter is the step and, for values that differ between cores,
the core. So a run is the same for a graph, a seed and a number of cores.
"""

from __future__ import annotations

import zlib

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.trip_counts import steps_of
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import carried, frames_around
from tpugraph.support.errors import ConversionError
from tpugraph.xla.cut_cluster import Cluster, core_number

_INT32 = attrs.dtype("int32")
_STRIDE = 65_599  # spreads the steps of a loop over those of the loop around it


def own_streams(found: Cluster) -> Tensor:
    """Make the random ops stateless; returns the argument for the seed, int32 [2]."""
    graph = found.graph
    seed = Builder(graph, "tpugraph/argument", marks={CLUSTER_ATTR: CLUSTER}).placeholder(_INT32, (2,), name="seed")
    chosen = {node: varies for node, varies in found.streams.items() if node.op in ops.STATELESS and node in graph}
    if not chosen:
        return seed
    counters = _Counters(found, seed)
    frame_of = analysis.frames(graph)
    for node, varies in chosen.items():
        frame = frame_of[node]
        _make_stateless(graph, node, counters.key(node, frame), counters.draw(frame, varies and found.num_replicas > 1))
    return seed


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

    def _core(self) -> Tensor:
        if ("", "core") not in self._made:
            self._made["", "core"] = core_number(self.graph)
        return self._made["", "core"]

    def _step(self, frame: str) -> Tensor:
        if not frame:
            return self._first
        if (frame, "step") not in self._made:
            around = self._around[frame]
            number = self.found.number if frame == self.found.frame else self._number(frame)
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


def _make_stateless(graph: Graph, node: Node, key: Tensor, draw: Tensor) -> None:
    seed = _maker(graph).add("Pack", [key, draw], (2,), axis=0)
    shape, *limits = node.inputs
    kind = node.attr("Tout" if node.has_attr("Tout") else "dtype")
    attributes = {"dtype": kind, "T": shape.dtype, "Tseed": _INT32}
    graph.retype(node, ops.STATELESS[node.op], inputs=[shape, seed, *limits], attrs=attributes)


def _maker(graph: Graph) -> Builder:
    return Builder(graph, "tpugraph/stream", marks={CLUSTER_ATTR: CLUSTER})
