"""What the classes of the Estimator API refuse, word by word, in ``tests/golden/estimator/refusals.txt``.

A line that begins with ``$`` is an expression in the names below, and what follows is the error that it raises, by the kind that
programs catch. ``TPUGRAPH_UPDATE_GOLDEN=1`` writes the file anew: review it.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from transcripts import assert_recorded, sections

import tpugraph
from classifier import eval_fn, train_fn
from estimators import dataset, estimator, input_fn, linear_fn
from models import GOLDEN
from tpugraph.compat import v1
from tpugraph.estimator import canned_estimators, heads

REFUSALS = GOLDEN / "estimator" / "refusals.txt"
tf1 = tf.compat.v1


def made(**arguments: Any) -> Any:
    """An estimator of a linear model, with such arguments."""
    config = tpugraph.RunConfig()
    return tpugraph.TPUEstimator(**{"model_fn": linear_fn, "config": config, "train_batch_size": 8, **arguments})


def spec(kind: Any = tpugraph.EstimatorSpec, **fields: Any) -> Any:
    return kind(**{"mode": "train", "loss": tf.constant(1.0), "train_op": tf.no_op(), **fields})


def by_name(features: dict[str, Any], **tables: Any) -> Any:
    """A spec of tables by name; the table ``t`` has two rows where it is not given."""
    given = {"t": tpugraph.TableConfig(2, 2), **tables}
    return tpugraph.EmbeddingConfigSpec(None, tpugraph.StochasticGradientDescentParameters(0.3), feature_to_config_dict=features,
                                        table_to_config_dict=given)  # fmt: skip


def spanning(dims: Any) -> Any:
    """An estimator whose replicas are two cores each, which divide the input."""
    tpu = tpugraph.TPUConfig(4, 2, 2, tpugraph.InputPipelineConfig.PER_HOST_V2, input_partition_dims=dims)
    return made(config=tpugraph.RunConfig(tpu, model_dir="m"), train_batch_size=32)


def two_heads() -> Any:
    return v1.estimator.MultiHead([heads.RegressionHead(name="price"), heads.MultiClassHead(3, name="kind")])


NAMES: dict[str, Any] = {name: getattr(tpugraph, name) for name in tpugraph.__all__}
NAMES |= {"tf": tf, "tf_keras": tf_keras, "v1": v1, "heads": heads, "canned": canned_estimators, "train_fn": train_fn,
          "eval_fn": eval_fn, "made": made, "spec": spec, "by_name": by_name, "two_heads": two_heads, "spanning": spanning,
          "estimator": estimator, "dataset": dataset, "input_fn": input_fn, "np": np}  # fmt: skip


@pytest.mark.parametrize("asked", [asked for asked, _ in sections(REFUSALS)])
def test_each_refusal_is_the_recorded_one(asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TPU_NAME", raising=False)
    with tf.Graph().as_default(), pytest.raises((ValueError, TypeError, NotImplementedError)) as caught:
        eval(asked, NAMES)
    kind = next(
        kind.__name__ for kind in (TypeError, NotImplementedError, ValueError) if isinstance(caught.value, kind)
    )
    said = re.sub(r" at 0x\w+|Symbolic(?=Tensor)", "", f"{kind}: {caught.value}")  # of v2 behaviour
    assert_recorded(REFUSALS, asked, said)
