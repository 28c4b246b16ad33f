"""Ops of TPU graphs, which have no CPU kernel, and collectives."""

from __future__ import annotations

from tpugraph.ops.facts import Rank, Trusted
from tpugraph.ops.record import page

op = page("tpu")

_INFEED = frozenset({"bool", "int32", "int64", "uint32", "bfloat16", "float32", "complex64", "uint8", "int8"})
"""Read from TensorFlow 2.15; 1.15 lacks uint8 and int8."""

_REDUCED = frozenset({"float16", "bfloat16", "float32", "float64", "int32", "uint32"})
"""By the definition of the op."""

op("ConfigureDistributedTPU ShutdownDistributedTPU XlaSetDynamicDimensionSize", role="tpu")
op("TPUReplicateMetadata", role="tpu_metadata")
op("TPUCompilationResult", role="compilation_result")
op("TPUReplicatedInput", role="cluster_input")
op("TPUReplicatedOutput", role="replicated_output")
op("InfeedEnqueueTuple", role="tpu", dtypes=_INFEED)
op("InfeedDequeueTuple", role="infeed", dtypes=_INFEED, trusted=Trusted(alike=("dtypes", "shapes")))
op("OutfeedEnqueueTuple", role="tpu")
op("OutfeedDequeueTuple", role="outfeed")
op("CrossReplicaSum", role="all_reduce", dims="..., - -> ...", linear="0", dtypes=_REDUCED)
op("CollectiveReduceV2", effects=False)
op("CollectiveGather", trusted=Trusted(most=(("group_size", 2**31 - 1),)))
op(
    "TPUPartitionedInput",
    trusted=Trusted(ranks=(Rank(slice(None), "partition_dim", exact=False, more=1),), most=(("partition_dim", 253),)),
)
op("XlaReplicaId", role="replica_id")
op("XlaAllReduce")
