"""Whether the workers of a cluster can sum by TensorFlow's collectives."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.runtime.cluster.watched_session import WatchedSession
from tpugraph.runtime.cluster.workers import WorkerJob
from tpugraph.support.errors import RunError

tf1 = tf.compat.v1

_SECONDS = 20


def new_key() -> int:
    """A number for a group of workers that no other group has: one that came back must not meet an older group."""
    return int.from_bytes(os.urandom(3), "little") + 1


def work(workers: WorkerJob, devices: Sequence[str], config: Any) -> bool:
    """Try a sum over one number of each worker.

    It fails where a worker was lost before: the servers that are left remember it, and refuse collectives with the new
    one until they are started anew. It also fails where a server was started without a collective_group_leader.

    Args:
        workers: the cluster.
        devices: one of each worker.
        config: the session's ``tf.compat.v1.ConfigProto``.

    Raises:
        RunError: a worker is lost in the meantime.
    """
    with tf.Graph().as_default() as graph:
        key = new_key()
        sums = []
        for device in devices:
            with tf.device(device):
                keys = {"group_size": len(devices), "group_key": key, "instance_key": 1, "ordering_token": []}
                sums.append(tf.raw_ops.CollectiveReduceV2(input=tf.ones([1]), merge_op="Add", final_op="Id", **keys))
    limited = tf1.ConfigProto()
    limited.CopyFrom(config)
    limited.operation_timeout_in_ms = 2000 * _SECONDS
    with contextlib.closing(WatchedSession(workers, graph, limited)) as session:
        try:
            found = session.run(sums, options=tf1.RunOptions(timeout_in_ms=_SECONDS * 1000))
        except tf.errors.OpError:
            return False
        except RunError as error:
            if isinstance(error.__cause__, tf.errors.OpError):  # the answer of a server, and no silence
                return False
            raise
    return all(np.array_equal(value, [len(devices)]) for value in found)
