"""What a user's own pytest needs: graphs as text, one pass against golden text, training on emulated cores.

def test_my_pass():
    testing.check_pass(MyPass(), "x = Test()\\ny = Old(x)", "x = Test()\\ny = New(x)", edits="+0 -0 ~1")

def test_my_model():
    plain = testing.run_plain("model_at_batch_32.pb", steps=10, checkpoint="model.ckpt-0")
    cores = testing.run_on_cores("model_at_batch_8.pb", steps=10, num_replicas=4, checkpoint="model.ckpt-0")
    testing.assert_same_training(cores, plain, relative=1e-4, absolute=1e-6)
"""

from tpugraph.ir.text import format_graph as graph_text
from tpugraph.ir.text import parse_graph as parse
from tpugraph.testing.helpers import (
    UPDATE_VARIABLE,
    assert_raises_block,
    check_golden,
    check_pass,
    graph_before,
    run_pass,
)
from tpugraph.testing.reduce import symptom
from tpugraph.testing.trainings import Training, assert_same_training, run_on_cores, run_plain

__all__ = [
    "UPDATE_VARIABLE",
    "Training",
    "assert_raises_block",
    "assert_same_training",
    "check_golden",
    "check_pass",
    "graph_before",
    "graph_text",
    "parse",
    "run_on_cores",
    "run_pass",
    "run_plain",
    "symptom",
]
