"""The same graph in, the same bytes out; what is saved loads as it was; the cluster does not grow with the cores."""

from pathlib import Path

import pytest
from forked import Programs

from models import CORPUS, Model, corpus, family
from tpugraph.analysis import in_cluster
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.graphdef import serialize
from tpugraph.testing import graph_text
from tpugraph.tpu.program import Program
from tpugraph.xla import stablehlo

NAMES = sorted(folder.name for folder in CORPUS.iterdir() if folder.is_dir())
SOME = ("bert_small", "dynamic_while_v2", "partitioned", "sum_canned_dnnlinear")
"""Of the families."""


def bytes_of(graph: Graph) -> bytes:
    return serialize(convert(graph, iterations_per_loop=6).graph_def)


@pytest.mark.parametrize("model", [*map(corpus, NAMES), *map(family, SOME)], ids=lambda model: model.name)
def test_converting_twice_gives_the_same_bytes(model: Model) -> None:
    assert bytes_of(model.graph()) == bytes_of(model.graph())


IN_ANOTHER_PROCESS = """
import sys
from test_determinism import written
written(*sys.argv[1:])
print(hash("tpugraph"))
"""


def written(source: str, program: str, module: str) -> list[bytes]:
    """The file of a converted graph, and what it is lowered to."""
    made = convert(source, num_replicas=8, iterations_per_loop=6)
    made.save(program)
    Path(module).write_bytes(stablehlo.lower(graphdef.from_graph_def(made.graph_def)).code)
    return [Path(place).read_bytes() for place in (program, module)]


def test_another_process_with_another_hash_seed_gives_the_same_bytes(new_process: Programs, tmp_path: Path) -> None:
    """This process, which has made other graphs before, and a new one."""
    source = str(corpus("lstm_dynamic").folder / "model.pb")
    places = [str(tmp_path / name) for name in ("other.pb", "other.mlirbc")]
    done = new_process("-c", IN_ANOTHER_PROCESS, source, *places)
    assert done.code == 0, done.err
    assert int(done.out.splitlines()[-1]) != hash("tpugraph")
    found = written(source, str(tmp_path / "here.pb"), str(tmp_path / "here.mlirbc"))
    assert found == [Path(place).read_bytes() for place in places]


def test_the_meta_and_the_bare_graph_give_the_same_program() -> None:
    """Collections are hints: where they are right they change nothing."""
    folder = corpus("iris_dnn").folder
    programs = [convert(folder / file, num_replicas=8) for file in ("model.pb", "model.ckpt-0.meta", "graph.pbtxt")]
    texts = [sorted(graph_text(graphdef.from_graph_def(p.graph_def)).splitlines()) for p in programs]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("name", NAMES)
def test_load_save_load_is_the_same_graph(name: str, tmp_path: Path) -> None:
    first = corpus(name).graph()
    graphdef.save(first, tmp_path / "again.pb")
    again = graphdef.load(tmp_path / "again.pb")
    assert graph_text(first) == graph_text(again)
    assert serialize(graphdef.to_graph_def(first)) == (tmp_path / "again.pb").read_bytes()
    assert serialize(graphdef.to_graph_def(again)) == (tmp_path / "again.pb").read_bytes()


def test_a_program_saves_and_loads(tmp_path: Path) -> None:
    program = convert(corpus("while_cond").folder / "model.pb", num_replicas=4)
    program.save(tmp_path / "model_tpu.pb")
    found = Program.load(tmp_path / "model_tpu.pb")
    assert (found.graph_def, found.plain) == (program.graph_def, program.plain)
    found.save(tmp_path / "again.pb")
    assert (tmp_path / "again.pb").read_bytes() == (tmp_path / "model_tpu.pb").read_bytes()


def test_the_cluster_has_as_many_nodes_for_2048_cores_as_for_8() -> None:
    path = corpus("iris_dnn").folder / "model.pb"
    eight, many = (convert(path, num_replicas=cores, global_batch=2048) for cores in (8, 2048))
    names = [
        [node.name for node in graphdef.from_graph_def(made.graph_def) if in_cluster(node)] for made in (eight, many)
    ]
    assert names[0] == names[1]
    assert eight.report["nodes"]["device"] == many.report["nodes"]["device"]


def test_loop_length_changes_one_constant_only() -> None:
    path = corpus("clip_adam").folder / "model.pb"
    made = [convert(path, iterations_per_loop=k).graph_def for k in (5, 50)]
    texts = [graph_text(graphdef.from_graph_def(graph_def)).splitlines() for graph_def in made]
    changed = [a for a, b in zip(*texts, strict=True) if a != b]
    assert len(changed) == 1
    assert changed[0].startswith("tpugraph/iterations_per_loop/Initializer = Const()")
