"""Where a session runs: in this process, on a TPU master, or on the workers of a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import tensorflow as tf

from tpugraph.analysis import num_replicas
from tpugraph.ir import Graph
from tpugraph.ir.session_config import guarded
from tpugraph.runtime.cluster import tpu_master, worker_collectives
from tpugraph.runtime.cluster.watched_session import WatchedSession
from tpugraph.runtime.cluster.workers import WorkerJob, answers, cluster_of, configured, host_devices
from tpugraph.runtime.emulator.hosts import Hosts
from tpugraph.support.errors import RunError

T = TypeVar("T")
REACH_SECONDS = 15.0
"""How long a server and its workers are waited for."""


@dataclass(frozen=True)
class Master:
    """What answers at an address.

    Attributes:
        address: of the server; "" is this process.
        devices: the names of its devices; none are asked for in this process.
        cluster: the workers behind it, where there are several.
        collectives: whether they can sum by collectives.
    """

    address: str = ""
    devices: tuple[str, ...] = ()
    cluster: WorkerJob | None = None
    collectives: bool = True

    @property
    def on_tpu(self) -> bool:
        """Whether it has TPU cores."""
        return tpu_master.present(self.devices)

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return 1 if self.cluster is None else max(len(host_devices(self.devices)), 1)

    def hosts_for(self, graph: Graph) -> Hosts | None:
        """The hosts for the replicas of a TPU graph; None for one host.

        Raises:
            RunError: the replicas cannot be dealt out evenly.
        """
        if self.hosts == 1:
            return None
        replicas = num_replicas(graph)
        if replicas % self.hosts:
            raise RunError(f"{replicas} cores cannot be dealt out to {self.hosts} workers", origin=graph.source,
                           fix=f"convert with --num_replicas={8 * self.hosts}")  # fmt: skip
        return Hosts(host_devices(self.devices), replicas, worker_collectives.new_key(), self.collectives)

    @property
    def notes(self) -> list[str]:
        """What is worth knowing about it."""
        if self.collectives:
            return []
        return ["the workers refuse collectives, since one was lost before: sums are made on worker 0 until all are "
                "started anew"]  # fmt: skip

    def session(self, graph: Any, config: Any, progress: str | None) -> Any:
        """A session on a graph."""
        if self.cluster is None:
            return tf.compat.v1.Session(self.address, graph=graph, config=guarded(config, converted=True))
        return WatchedSession(self.cluster, graph, config, progress=progress)


def reach(master: str, cluster: Any, seconds: float = REACH_SECONDS) -> Master:
    """See what answers at an address.

    Args:
        master: address of a server; that of the first worker when "".
        cluster: the workers, see :func:`tpugraph.runtime.cluster.workers.cluster_of`; None where only the master is known.
        seconds: how long to wait for them.

    Raises:
        RunError: nothing answers, or not all of the workers.
    """
    workers = cluster_of(cluster)
    if workers is None and not master:
        return Master()
    if workers is not None:
        workers.wait(seconds)
    address = master or (workers.master if workers else "")
    until = time.monotonic() + seconds
    if workers is None:
        _wait_for(address, until, seconds)
    config = configured(None, workers.job) if workers else tf.compat.v1.ConfigProto()
    config.operation_timeout_in_ms = max(int(1000 * (until - time.monotonic())), 1000)
    devices = tuple(_in_time(lambda: tpu_master.devices_of(address, config), seconds, f"the server at '{address}'"))
    hosts = host_devices(devices)
    if workers is not None and len(workers.addresses) != max(len(hosts), 1):
        raise RunError(
            f"the cluster has {len(workers.addresses)} workers, but the server at '{address}' knows of {len(hosts)}",
            fix="start each worker with the addresses of all",
        )
    if len(hosts) < 2 or tpu_master.present(devices):
        return Master(address, devices)
    job = hosts[0].removeprefix("/job:").partition("/")[0]
    workers = workers or WorkerJob(job, (address.removeprefix("grpc://"),))
    able = worker_collectives.work(workers, hosts, configured(None, job))
    return Master(address, devices, workers, able)


def _wait_for(address: str, until: float, seconds: float) -> None:
    """Wait until a server answers: TensorFlow would wait for ever, deaf to Ctrl-C."""
    place = address.removeprefix("grpc://")
    while not answers(place, min(max(until - time.monotonic(), 1.0), 5.0)):
        if time.monotonic() >= until:
            raise RunError(f"no TensorFlow server answers at '{address}' within {seconds:g} s",
                           fix="check the address, or leave --master away to run emulated cores")  # fmt: skip
        time.sleep(0.5)


def _in_time(work: Callable[[], T], seconds: float, what: str) -> T:
    """What work returns, done in a thread that is left behind where it takes too long."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:  # raised again where the result is waited for
            found.set_exception(error)

    threading.Thread(target=run, daemon=True, name="tpugraph-reach").start()
    until = time.monotonic() + seconds
    while not found.done() and time.monotonic() < until:
        time.sleep(0.05)
    if not found.done():
        raise RunError(f"{what} does not say within {seconds:g} s which devices it has",
                       fix="see that it runs and that all workers of its cluster do")  # fmt: skip
    return found.result()
