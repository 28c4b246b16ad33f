"""TPUClusterResolver: from the name of a TPU to the address of its server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tpugraph.support.errors import ArgumentError, ArgumentTypeError

_ADDRESSES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
"""Environment variables that name the TPU, first one first."""


class TooManyTPUsError(ArgumentError, NotImplementedError):
    """More than one TPU is named."""


class TPUClusterResolver:
    """Tells where the TPU is.

    Args:
        tpu: ``""`` or ``"local"`` for emulated cores in this process, the address of a TensorFlow server
            (``"grpc://10.0.0.2:8470"``, or those of all workers separated by commas), or a list with one of these. None
            takes it from the environment
            (KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME).
        zone: zone of the TPU; names are not looked up, so it is not used.
        project: project of the TPU; not used either.
        job_name: job of the workers in the cluster.
        coordinator_name: job of this process in the cluster.
        coordinator_address: address of this process.
        credentials: not used.
        service: not used.
        discovery_url: not used.
        tpu_names: another name of ``tpu``.

    Raises:
        ArgumentError: no TPU is named, or by a name that is no address (a ``ValueError``).
        ArgumentTypeError: a name that is no text (a ``TypeError``).
        TooManyTPUsError: several TPUs (a ``NotImplementedError``).
    """

    def __init__(
        self,
        tpu: str | bytes | Sequence[str] | None = None,
        zone: str | None = None,
        project: str | None = None,
        job_name: str = "worker",
        coordinator_name: str | None = None,
        coordinator_address: str | None = None,
        credentials: Any = "default",
        service: Any = None,
        discovery_url: str | None = None,
        *,
        tpu_names: Sequence[str] | None = None,
    ) -> None:
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
        """Where this runs; "" since nothing is known of it."""
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
