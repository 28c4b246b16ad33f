"""The cluster: TF_CONFIG, and TPUClusterResolver for the address of a TPU."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpugraph.support.errors import ArgumentError, ArgumentTypeError
from tpugraph.xla.jax_client import joined

EVALUATOR = "evaluator"
PARAMETER_SERVER = "ps"
_CHIEFS = ("chief", "master")


def environment() -> dict[str, Any]:
    """The content of TF_CONFIG; empty where it is not set."""
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"TF_CONFIG in the environment is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ArgumentError(f"TF_CONFIG in the environment must be a JSON object, but is {text}")
    return found


def tpu_job_name() -> str | None:
    return (service_of(environment()) or {}).get("tpu_worker_job_name")


def service_of(config: Mapping[str, Any]) -> dict[str, Any] | None:
    service = config.get("service")
    if service is not None and not isinstance(service, dict):
        raise ArgumentTypeError(f'"service" in TF_CONFIG must be a dict, but is {service!r}')
    return service


@dataclass(frozen=True)
class Task:
    """This process in the cluster.

    Attributes:
        kind: ``worker``, ``chief``, ``ps`` or ``evaluator``.
        jobs: addresses of each kind of task; empty without a cluster, and for an evaluator, who is in none.
        master, evaluation_master: addresses of TensorFlow servers; "" is this process.
    """

    kind: str
    index: int
    jobs: Mapping[str, list[str]]
    master: str
    evaluation_master: str
    service: dict[str, Any] | None

    @property
    def is_chief(self) -> bool:
        """Whether it writes the checkpoints."""
        return self.kind in _CHIEFS if self.jobs else self.kind != EVALUATOR

    @property
    def workers(self) -> int:
        """How many tasks train, the chief among them; an evaluator sees none."""
        if not self.jobs:
            return 0 if self.kind == EVALUATOR else 1
        return sum(len(self.jobs.get(kind, [])) for kind in (*_CHIEFS, "worker"))

    @property
    def number(self) -> int | None:
        """Its number among all tasks: the chief is 0, parameter servers come last; None for an evaluator."""
        if self.kind == EVALUATOR:
            return None
        order = sorted(self.jobs, key=lambda kind: (kind not in _CHIEFS, kind == PARAMETER_SERVER, kind))
        before = order[: order.index(self.kind)] if self.jobs else []
        return sum(len(self.jobs[kind]) for kind in before) + self.index


def current_task() -> Task:
    """What TF_CONFIG says of this process."""
    config = environment()
    jobs, given, service = dict(config.get("cluster") or {}), config.get("task") or {}, service_of(config)
    kind, index = given.get("type", "" if jobs else "worker"), int(given.get("index", 0))
    evaluation_master = config.get("eval_session_master", "")
    if not jobs:
        if (kind, index) != ("worker", 0):
            raise ArgumentError(f"TF_CONFIG has no cluster, but the task {kind} {index}",
                                fix='worker 0, or a "cluster"')  # fmt: skip
        return Task(kind, index, {}, config.get("session_master", ""), evaluation_master, service)
    _check(jobs, kind, index)
    if kind == EVALUATOR:
        return Task(kind, index, {}, "", evaluation_master, service)
    alone = sum(map(len, jobs.values())) == 1
    master = config.get("session_master") or ("" if alone else f"grpc://{jobs[kind][index]}")
    return Task(kind, index, jobs, master, "", service)


def refuse_to_train(kind: str, index: int, *, beside_chief: bool = False) -> None:
    """Refuses parameter servers, workers beside the chief, which trains alone, and processes that jax has joined."""
    if joined():
        raise ArgumentError("jax has joined this process with others, and an estimator trains in one process",
                            fix="a tpugraph.TPUSession in each process, or tpugraph run --distributed=auto")  # fmt: skip
    if kind == PARAMETER_SERVER:
        raise ArgumentError(
            f"TF_CONFIG calls this process ps {index}, a parameter server, but variables live on the cores here",
            fix='start no process for "ps", and take it out of the "cluster" of TF_CONFIG',
        )
    if beside_chief:
        raise ArgumentError(
            f"TF_CONFIG calls this process {kind} {index} beside a chief, but one process trains on all cores",
            fix="start the chief alone; cluster=tpugraph.TPUClusterResolver(...) shares the cores among hosts",
        )


def _check(jobs: Mapping[str, list[str]], kind: str, index: int) -> None:
    chiefs = [address for chief in _CHIEFS for address in jobs.get(chief, [])]
    if len(chiefs) != 1:
        raise ArgumentError(f'the "cluster" of TF_CONFIG must have one chief, but has {len(chiefs)}')
    if kind != EVALUATOR and not 0 <= index < len(jobs.get(kind, [])):
        raise ArgumentError(f"TF_CONFIG calls this process {kind or 'nothing'} {index}, which is not in its cluster",
                            fix='"task": {"type": "chief", "index": 0}')  # fmt: skip


_ADDRESSES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")


class TooManyTPUsError(ArgumentError, NotImplementedError):
    pass


class TPUClusterResolver:
    """The address of a TPU.

    Args:
        tpu: ``""`` or ``"local"`` for emulated cores in this process, the address of a TensorFlow server
            (``"grpc://10.0.0.2:8470"``, or those of all workers separated by commas), or a list with one of these. None
            takes it from KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS or TPU_NAME.
        job_name: job of the workers in the cluster.
        coordinator_name, coordinator_address: job and address of this process.
        zone, project, credentials, service, discovery_url: ignored: names of TPUs are not looked up.
        tpu_names: another name of ``tpu``.

    Raises:
        TooManyTPUsError: several TPUs (a ``NotImplementedError``).
    """

    def __init__(self, tpu: str | bytes | Sequence[str] | None = None, zone: str | None = None,
                 project: str | None = None, job_name: str = "worker", coordinator_name: str | None = None,
                 coordinator_address: str | None = None, credentials: Any = "default", service: Any = None,
                 discovery_url: str | None = None, *, tpu_names: Sequence[str] | None = None) -> None:  # fmt: skip
        del zone, project, credentials, service, discovery_url
        self._tpu = _named(tpu if tpu_names is None else tpu_names)
        self._job_name = job_name
        self._coordinator = (coordinator_name, coordinator_address)

    def master(self) -> str:
        """The address for a session; "" where the cores are in this process."""
        return self._tpu.partition(",")[0]

    def get_master(self) -> str:
        """The same as :meth:`master`."""
        return self.master()

    def get_job_name(self) -> str | None:
        """The job of the workers; None where the cores are in this process."""
        return self._job_name if self._tpu else None

    def cluster_spec(self) -> Any:
        """A ``tf.train.ClusterSpec``; None where the cores are in this process."""
        if not self._tpu:
            return None
        import tensorflow as tf

        jobs = {self._job_name: [address.removeprefix("grpc://") for address in self._tpu.split(",")]}
        name, address = self._coordinator
        if name and address:
            jobs[name] = [address]
        return tf.train.ClusterSpec(jobs)

    @property
    def environment(self) -> str:
        """ "" since nothing is known of where this runs."""
        return ""


def _named(tpu: Any) -> str:
    if isinstance(tpu, (list, tuple)):
        if len(tpu) > 1:
            raise TooManyTPUsError(f"{len(tpu)} TPUs are named ({', '.join(map(str, tpu))})", fix="name one")
        tpu = tpu[0] if tpu else None
    if tpu is None:
        tpu = next((os.environ[name] for name in _ADDRESSES if os.environ.get(name)), None)
    if tpu is None:
        raise ArgumentError(
            "no TPU is named: tpu is None and neither TPU_NAME nor KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS is set",
            fix='TPUClusterResolver("local") for emulated cores, or "grpc://HOST:PORT"',
        )
    if isinstance(tpu, bytes):
        tpu = tpu.decode()
    if not isinstance(tpu, str):
        raise ArgumentTypeError(f"tpu must be a name or an address, but is {tpu!r} ({type(tpu).__name__})")
    if tpu in ("", "local"):
        return ""
    if not all(address.startswith("grpc://") for address in tpu.split(",")):
        raise ArgumentError(
            f"'{tpu}' is no address, and names of TPUs are not looked up",
            fix='give its address "grpc://HOST:PORT" (of several workers with commas), or "local" for emulated cores',
        )
    return tpu
