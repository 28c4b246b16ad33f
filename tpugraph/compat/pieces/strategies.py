"""``tf.contrib.distribute``: strategies that mean the cores."""

from __future__ import annotations

from typing import Any, NamedTuple

from tpugraph.estimator.run_config import CoreStrategy


class MirroredStrategy(CoreStrategy):
    """Trains on as many cores as the program asks for GPUs; other options mean nothing for cores."""

    def __init__(self, devices: Any = None, num_gpus: int | None = None, num_gpus_per_worker: int | None = None,
                 **options: Any) -> None:  # fmt: skip
        super().__init__(len(devices) if devices else num_gpus or num_gpus_per_worker)


class OneDeviceStrategy(CoreStrategy):
    """Trains on one core."""

    def __init__(self, device: Any = None) -> None:
        super().__init__(1)


class CollectiveAllReduceStrategy(CoreStrategy):
    """Trains on as many cores as the program asks for GPUs of each worker."""

    def __init__(self, num_gpus_per_worker: int | None = None, communication: Any = None) -> None:
        super().__init__(num_gpus_per_worker)


class ParameterServerStrategy(CollectiveAllReduceStrategy):
    """The same: variables are on the cores, and there are no parameter servers."""


class TPUStrategy(CoreStrategy):
    """Trains on the cores of a TPU."""

    def __init__(self, tpu_cluster_resolver: Any = None, steps_per_run: int | None = None, **options: Any) -> None:
        super().__init__(None)


class DistributeConfig(NamedTuple):
    """What ``RunConfig(experimental_distribute=...)`` takes."""

    train_distribute: Any = None
    eval_distribute: Any = None
    remote_cluster: Any = None
