"""Input ops, all on the host: datasets, iterators, queues, staging areas and placeholders."""

from __future__ import annotations

from tpugraph.ops.facts import Batching, Rank, Trusted
from tpugraph.ops.record import page

op = page("input", host_only=True)

# --------------------------------------------------------------------------- what brings batches

op("IteratorV2 Iterator OneShotIterator AnonymousIterator AnonymousIteratorV2", role="iterator")
op("IteratorGetNext IteratorGetNextSync IteratorGetNextAsOptional", role="get_next")
op("MakeIterator", role="make_iterator")
op("IteratorToStringHandle IteratorFromStringHandleV2")
op("FIFOQueueV2 FIFOQueue RandomShuffleQueueV2 RandomShuffleQueue PaddingFIFOQueueV2 PaddingFIFOQueue", role="queue")
op("PriorityQueueV2 PriorityQueue", role="queue")
op("QueueDequeueV2 QueueDequeueUpToV2 QueueDequeue", role="dequeue")
op("QueueDequeueMany", role="dequeue_many")
op("QueueDequeueManyV2", role="dequeue_many", trusted=Trusted(ranks=(Rank(1, 0),)))
op("QueueEnqueueV2 QueueEnqueueManyV2 QueueEnqueue QueueEnqueueMany", role="enqueue")
op("QueueCloseV2 QueueClose QueueSizeV2")
op("Placeholder PlaceholderV2", role="placeholder")
op("PlaceholderWithDefault", role="default", dims="elementwise", linear="all", host_only=False)

# --------------------------------------------------------------------------- datasets that open files

op("TFRecordDataset TFRecordDatasetV2 TextLineDataset", file_operand=0, reach="reads")
op("FixedLengthRecordDataset FixedLengthRecordDatasetV2 MatchingFilesDataset", file_operand=0, reach="reads")
op("CSVDataset CSVDatasetV2 ExperimentalCSVDataset", file_operand=0, reach="reads")
op("SqlDataset ExperimentalSqlDataset LMDBDataset ExperimentalLMDBDataset LoadDataset", reach="reads")
op("SaveDataset SaveDatasetV2 SnapshotDataset SnapshotDatasetV2", reach="writes")
op("ReaderRead ReaderReadV2 ReaderReadUpTo ReaderReadUpToV2", reach="reads")

# --------------------------------------------------------------------------- datasets of datasets

op("BatchDataset", role="batch_dataset", batching=Batching(1, None))
op("PaddedBatchDataset", batching=Batching(1, None))
op("BatchDatasetV2", role="batch_dataset", batching=Batching(1, 2))
op("GroupByWindowDataset", role="window_dataset")
op("RebatchDatasetV2", role="rebatch_dataset", batching=Batching(1, 2))
op("ParallelBatchDataset", batching=Batching(1, 3))
op("PaddedBatchDatasetV2", batching=Batching(1, -1))
op("MapAndBatchDataset ExperimentalMapAndBatchDataset", batching=Batching(-3, -1))
op("PrefetchDataset", role="prefetch_dataset", elements="same")
op("OptimizeDataset OptimizeDatasetV2 OptionsDataset MaxIntraOpParallelismDataset", elements="same")
op("PrivateThreadPoolDataset AssertCardinalityDataset", elements="same")
op("ModelDataset", elements="same", measures=True)
op("RepeatDataset", role="repeat_dataset", elements="chosen")
op("ShuffleDataset ShuffleDatasetV2 ShuffleDatasetV3", role="shuffle_dataset", elements="chosen")
op("ShuffleAndRepeatDataset ShuffleAndRepeatDatasetV2 TakeDataset SkipDataset ShardDataset", elements="chosen")
op("CacheDataset CacheDatasetV2", elements="cached", file_operand=1, reach="writes")
op("MapDataset", role="map_dataset")
op("ParallelMapDataset ParallelMapDatasetV2", role="parallel_map_dataset")
op("TensorSliceDataset", role="slice_dataset")
op("ConcatenateDataset FlatMapDataset RangeDataset TensorDataset")
op("DeserializeIterator SerializeIterator Stage", host_only=False)
op("OptionalGetValue", role="get_optional", host_only=False)
op("OptionalFromValue", role="wrap_optional", host_only=False)
op("OptionalNone", role="empty_optional", host_only=False)
_STAGED = ("batches pass through a staging area", "read the iterator directly: the infeed stages the batches")
op("Unstage", host_only=False, apart=_STAGED)
op("MapUnstage OrderedMapUnstage", apart=_STAGED)
