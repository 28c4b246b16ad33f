"""The sound graphs that damaged ones are made of."""

from __future__ import annotations

import gzip
from typing import Any

from tensorflow.core.protobuf import meta_graph_pb2

from campaigns.graph_judge import DATA
from tpugraph import convert
from tpugraph.ir import graphdef

BASES = tuple(
    """corpus/iris_dnn corpus/while_cond corpus/ref_variables corpus/queue_runner corpus/batch_norm corpus/linear_classifier
    families/strings_tables families/partitioned families/dynamic_while_v2 families/cond_model families/keras_lstm_v2 families/ema
    families/scanned""".split()
)


class Sound:
    """The graphs that mutants are made of: MetaGraphDefs, half of them converted."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, bool], Any] = {}

    def graph(self, name: str, *, converted: bool) -> Any:
        """A corpus graph as a MetaGraphDef, converted or as it is."""
        key = (name, converted)
        if key not in self._held:
            meta = self._held[key] = meta_graph_pb2.MetaGraphDef()
            folder = DATA / name
            for path in folder.glob("*.meta"):
                meta.ParseFromString(path.read_bytes())
            for path in folder.glob("model.pb.gz"):
                meta.graph_def.ParseFromString(gzip.decompress(path.read_bytes()))
            if not meta.graph_def.node:
                meta.graph_def.ParseFromString((folder / "model.pb").read_bytes())
            if converted:
                meta.ClearField("collection_def")
                graph = graphdef.from_graph_def(meta.graph_def)
                meta.graph_def.CopyFrom(convert(graph, num_replicas=2, iterations_per_loop=2).graph_def)
        return self._held[key]
