"""The engine of a master that has TPU devices: a TPU graph runs there as it is, on the job that has the cores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE, in_cluster, num_replicas
from tpugraph.ir import Graph
from tpugraph.runtime.three_parts import ThreeParts
from tpugraph.runtime.timeline import Timeline
from tpugraph.support.errors import RunError

_JOB = re.compile(r"/job:([^/]+)/")


class TPUMaster(ThreeParts):
    """Runs a TPU graph on the TPU of a master.

    Args:
        graph: the TPU graph with its entry points; it is changed in place, see :func:`prepare`.
        devices: the names of the master's devices.
        timeline: takes note of how long each part takes.

    Raises:
        RunError: the graph is for more cores than there are.
    """

    def __init__(self, graph: Graph, devices: Sequence[str], timeline: Timeline) -> None:
        super().__init__(prepare(graph, devices), timeline)


def devices_of(master: str, config: Any = None) -> list[str]:
    """The names of a master's devices.

    Raises:
        RunError: nothing answers there.
    """
    try:
        with tf.compat.v1.Session(master, config=config) as session:
            return [device.name for device in session.list_devices()]
    except tf.errors.OpError as error:
        raise RunError(
            f"no TensorFlow server answers at '{master}': {str(error).splitlines()[0]}",
            fix="check the address, or leave --master away to run emulated cores",
        ) from error


def present(devices: Sequence[str]) -> bool:
    """Whether one of the devices is a TPU core."""
    return any("/device:TPU:" in name for name in devices)


def prepare(graph: Graph, devices: Sequence[str]) -> list[str]:
    """Put host ops on the job that has the TPU, and drop the checks that a TPU cannot run.

    Args:
        graph: a TPU graph; it is changed in place.
        devices: the names of the master's devices.

    Returns:
        A line for each kind of check dropped.

    Raises:
        RunError: the graph is for more cores than there are.
    """
    cores = [name for name in devices if "/device:TPU:" in name]
    wanted = num_replicas(graph)
    if wanted > len(cores):
        raise RunError(
            f"the graph is for {wanted} cores and the master has {len(cores)}",
            origin=graph.source,
            fix=f"convert with --num_replicas={len(cores)}",
        )
    match = _JOB.search(cores[0])
    job = match[1] if match else "localhost"
    held = _JOB.search(HOST_DEVICE)
    for node in graph:
        if held is not None and f"/job:{held[1]}/" in node.device:
            graph.set_device(node, node.device.replace(f"/job:{held[1]}/", f"/job:{job}/"))
        elif "TPU_SYSTEM" in node.device and "/job:" not in node.device:
            graph.set_device(node, f"/job:{job}/task:0{node.device}")
    return _drop_checks(graph)


def _drop_checks(graph: Graph) -> list[str]:
    dropped: dict[str, int] = {}
    for node in graph.of_type(*ops.CHECKS):
        if not in_cluster(node):
            continue
        dropped[node.op] = dropped.get(node.op, 0) + 1
        if node.op in ops.ASSERTS:
            graph.retype(node, "NoOp", inputs=[], attrs={}, outputs=[])
        else:
            graph.retype(node, "Identity", attrs={"T": node.attr("T")})
    return [f"dropped {count} {op} in the cluster: a TPU does not run them" for op, count in sorted(dropped.items())]
