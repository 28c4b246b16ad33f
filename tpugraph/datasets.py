"""Facts about dataset ops, the stages of an input pipeline."""

from __future__ import annotations

BATCHES: dict[str, tuple[int, int | None]] = {
    "BatchDataset": (1, None),
    "BatchDatasetV2": (1, 2),
    "ParallelBatchDataset": (1, 3),
    "PaddedBatchDataset": (1, None),
    "PaddedBatchDatasetV2": (1, -1),
    "MapAndBatchDataset": (-3, -1),
    "MapAndBatchDatasetV2": (-3, -1),
    "ExperimentalMapAndBatchDataset": (-3, -1),
    "RebatchDatasetV2": (1, 2),
}
"""Dataset ops that batch: the operand of the batch size and that of drop_remainder."""

SAME = frozenset(
    {"PrefetchDataset", "ModelDataset", "OptimizeDataset", "OptimizeDatasetV2", "OptionsDataset", "MaxIntraOpParallelismDataset",
     "PrivateThreadPoolDataset", "AssertCardinalityDataset"}
)  # fmt: skip
"""Datasets that hand on the elements of another as they are."""

MEASURED = frozenset({"ModelDataset"})
"""Datasets that measure the stages before them, and do nothing else."""

ORDER = frozenset(
    {"RepeatDataset", "ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3", "ShuffleAndRepeatDataset",
     "ShuffleAndRepeatDatasetV2", "TakeDataset", "SkipDataset", "ShardDataset"}
)  # fmt: skip
"""Datasets that choose and order the elements of another without looking at them."""

HANDS_ON = SAME | ORDER | {"CacheDataset", "CacheDatasetV2"}
"""Datasets whose elements are those of another: a batch stays a batch."""
