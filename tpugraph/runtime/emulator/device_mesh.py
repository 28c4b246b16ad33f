"""The mesh that emulated cores are thought to form: hosts with eight cores each, two on a chip."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow.python.tpu import device_assignment, topology

CORES_OF_A_HOST = 8
_REPLICAS = {1: (1, 1, 1, 1), 2: (1, 1, 1, 2), 4: (1, 2, 1, 2), 8: (2, 2, 1, 2)}
"""By its number of cores the part of the mesh that a replica takes; a larger one takes whole hosts."""


def assignment(num_replicas: int, cores_per_replica: int) -> Any:
    """Where the cores of each replica lie.

    Args:
        num_replicas: how many replicas there are.
        cores_per_replica: cores that each spans: 1, 2, 4, ... 128.

    Returns:
        A ``tf.tpu.experimental.DeviceAssignment``.
    """
    mesh = topology_of(-(-num_replicas * cores_per_replica // CORES_OF_A_HOST))
    part = _REPLICAS.get(cores_per_replica) or (2, cores_per_replica // 4, 1, 2)
    return device_assignment.device_assignment(mesh, list(part), num_replicas=num_replicas)


def topology_of(hosts: int) -> Any:
    """The mesh of so many hosts, a ``tf.tpu.experimental.Topology``."""
    cores = [(x, y, 0, core) for y in range(2 * hosts) for x in range(2) for core in range(2)]
    places = np.asarray(cores, np.int32).reshape(hosts, CORES_OF_A_HOST, 4)
    return topology.Topology(mesh_shape=np.asarray((2, 2 * hosts, 1, 2), np.int32), device_coordinates=places)
