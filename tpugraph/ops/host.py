"""Host ops: summaries, files, lookup tables, assertions, calls of Python."""

from __future__ import annotations

from tpugraph.ops.record import Call, page

op = page("host", host_only=True)


def _lookup(call: Call) -> str | None:
    """A table has a scalar or a vector per key."""
    return {0: "-, ..., - -> ...", 1: "-, ..., - -> ...*"}.get(-1 if call.ranks[2] is None else call.ranks[2])


op("PyFunc PyFuncStateless EagerPyFunc", role="python", reach="calls")
op("ScalarSummary HistogramSummary ImageSummary AudioSummary AudioSummaryV2", role="summary")
op("TensorSummary TensorSummaryV2", role="summary")
op("MergeSummary", role="merge_summary")
op("WriteScalarSummary WriteHistogramSummary WriteSummary WriteImageSummary WriteAudioSummary", reach="writes")
op("WriteGraphSummary FlushSummaryWriter CreateSummaryFileWriter CloseSummaryWriter", reach="writes")
op("SummaryWriter")
op("Print PrintV2", role="print", reach="prints")
op("Assert", role="assert", host_only=False)
op("SaveV2", role="save_tensors", reach="writes")
op("SaveSlices Save MergeV2Checkpoints", role="save", reach="writes")
op("ShardedFilename", role="save")
op("RestoreV2 Restore RestoreSlice", role="restore", reach="reads")
op("HashTableV2 HashTable MutableHashTableV2 MutableHashTable MutableDenseHashTableV2", role="table")
op("MutableHashTableOfTensorsV2", role="table")
op("InitializeTableV2 InitializeTable", role="fill_table")
op("InitializeTableFromTextFileV2 InitializeTableFromTextFile", role="fill_table", file_operand=1, reach="reads")
op("LookupTableImportV2 LookupTableImport", role="fill_table")
op("LookupTableFind", dims=_lookup)
op("LookupTableFindV2", dims=_lookup, effects=False)
op("LookupTableSizeV2")
op("ReadFile MatchingFiles", file_operand=0, reach="reads")
op("GenerateVocabRemapping ImmutableConst LoadAndRemapMatrix", reach="reads")
op("WriteFile", file_operand=0, reach="writes")
op(
    "DebugIdentity DebugIdentityV2 DebugIdentityV3 DebugNanCount DebugNumericSummary DebugNumericSummaryV2",
    reach="writes",
)
op("Abort", reach="ends")
op("Timestamp EncodeJpeg EncodePng")
