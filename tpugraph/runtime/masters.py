"""Where a session runs: in this process, on a master with TPU devices, or on the workers of a cluster."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE, in_cluster, num_replicas
from tpugraph.ir import Graph
from tpugraph.ir.session_config import guarded
from tpugraph.runtime.emulator.hosts import Hosts
from tpugraph.runtime.workers import WatchedSession, WorkerJob, cluster_of, configured
from tpugraph.support.errors import RunError
from tpugraph.support.process import ended, in_thread

T = TypeVar("T")
REACH_SECONDS = 15.0  # the timeout for a server and its workers
_NO_MASTER = "check the address, or leave --master away to run emulated cores"


@dataclass(frozen=True)
class Master:
    """The target of a session: this process, a TPU master or a cluster."""

    address: str = ""  # of the server; "" is this process
    devices: tuple[str, ...] = ()  # their names; empty for this process
    cluster: WorkerJob | None = None  # its workers, where there are several

    @property
    def on_tpu(self) -> bool:
        return has_tpu(self.devices)

    @property
    def hosts(self) -> int:
        return 1 if self.cluster is None else max(len(host_devices(self.devices)), 1)

    def hosts_for(self, graph: Graph) -> Hosts | None:
        """The hosts for the replicas of a TPU graph; None for one host."""
        if self.hosts == 1:
            return None
        replicas = num_replicas(graph)
        if replicas % self.hosts:
            raise RunError(f"{replicas} cores cannot be divided evenly among {self.hosts} workers", origin=graph.source,
                           fix=f"convert with --num_replicas={8 * self.hosts}")  # fmt: skip
        return Hosts(host_devices(self.devices), replicas)

    def session(self, graph: Any, config: Any, progress: str | None) -> Any:
        """A session on a ``tf.Graph``; ``progress`` names a tensor that changes during a run."""
        if self.cluster is None:
            return tf.compat.v1.Session(self.address, graph=graph, config=guarded(config, converted=True))
        return WatchedSession(self.cluster, graph, config, progress=progress)


def reach(master: str, cluster: Any, seconds: float = REACH_SECONDS) -> Master:
    """Connect to an address.

    ``cluster`` are the workers, see :func:`tpugraph.runtime.workers.cluster_of`; None where only the master is known.
    """
    workers = cluster_of(cluster)
    if workers is None and not master:
        return Master()
    address = master or (workers.master if workers else "")
    if workers is not None:
        workers.wait(seconds)
    elif WorkerJob("", (master.removeprefix("grpc://"),)).silent_for(seconds):  # TensorFlow would wait forever
        raise RunError(f"no TensorFlow server answers at '{address}' within {seconds:g} s", fix=_NO_MASTER)
    config = configured(None) if workers else tf.compat.v1.ConfigProto()
    config.operation_timeout_in_ms = max(int(1000 * seconds), 1000)
    devices = tuple(_in_time(lambda: _devices_of(address, config), seconds, f"the server at '{address}'"))
    hosts = host_devices(devices)
    if workers is not None and len(workers.addresses) != max(len(hosts), 1):
        raise RunError(f"the cluster has {len(workers.addresses)} workers, but the server at '{address}' knows of {len(hosts)}",
                       fix="start each worker with the addresses of all")  # fmt: skip
    if len(hosts) < 2 or has_tpu(devices):
        return Master(address, devices)
    job = hosts[0].removeprefix("/job:").partition("/")[0]
    return Master(address, devices, workers or WorkerJob(job, (address.removeprefix("grpc://"),)))


def _in_time(work: Callable[[], T], seconds: float, what: str) -> T:
    """The result of ``work`` within a time limit; its thread is abandoned afterwards."""
    found = in_thread(work, "tpugraph-cluster")
    if not ended(found, seconds):
        raise RunError(f"{what} does not say within {seconds:g} s which devices it has",
                       fix="see that it runs and that all workers of its cluster do")  # fmt: skip
    return found.result()


def _devices_of(master: str, config: Any) -> list[str]:
    try:
        with tf.compat.v1.Session(master, config=config) as session:
            return [device.name for device in session.list_devices()]
    except tf.errors.OpError as error:
        raise RunError(f"no TensorFlow server answers at '{master}': {str(error).splitlines()[0]}",
                       fix=_NO_MASTER) from error  # fmt: skip


def host_devices(devices: Sequence[str]) -> tuple[str, ...]:
    """The CPU device of each task of a master, in order."""
    found: dict[int, str] = {}
    for name in devices:
        match = re.search(r"/task:(\d+)/device:CPU:0$", name)
        if match and "/job:localhost/" not in name:
            found[int(match[1])] = name
    return tuple(found[task] for task in sorted(found))


# --------------------------------------------------------------------------- TPU devices

_JOB = re.compile(r"/job:([^/]+)/")


def has_tpu(devices: Sequence[str]) -> bool:
    return any("/device:TPU:" in name for name in devices)


def place_on_master(graph: Graph, devices: Sequence[str]) -> list[str]:
    """Place host ops on the TPU's job, and drop assertions that a TPU cannot run; returns a line per kind of these."""
    cores = [name for name in devices if "/device:TPU:" in name]
    wanted = num_replicas(graph)
    if wanted > len(cores):
        raise RunError(f"the graph is for {wanted} cores and the master has {len(cores)}", origin=graph.source,
                       fix=f"convert with --num_replicas={len(cores)}")  # fmt: skip
    match = _JOB.search(cores[0])
    job = match[1] if match else "localhost"
    held = _JOB.search(HOST_DEVICE)
    for node in graph:
        if held is not None and f"/job:{held[1]}/" in node.device:
            graph.set_device(node, node.device.replace(f"/job:{held[1]}/", f"/job:{job}/"))
        elif "TPU_SYSTEM" in node.device and "/job:" not in node.device:
            graph.set_device(node, f"/job:{job}/task:0{node.device}")
    dropped: Counter[str] = Counter()
    for node in filter(in_cluster, graph.of_type(*ops.CHECKS)):
        dropped[node.op] += 1
        if node.op in ops.ASSERTS:
            graph.retype(node, "NoOp", inputs=[], attrs={}, outputs=[])
        else:
            graph.retype(node, "Identity", attrs={"T": node.attr("T")})
    return [f"dropped {count} {op} in the cluster: a TPU does not run them" for op, count in sorted(dropped.items())]
