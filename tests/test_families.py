"""Real graphs of other model families train as TensorFlow 1.15's Estimator did.

Hand-made optimizers, sums and L2, BERT, Keras models, embeddings with each sparse optimizer, partitioned variables, several
optimizers in a step, weight averages, tables and strings, data-dependent loops of both kinds, scans, conds, slim and
contrib models, a Scaffold's own saver, heads with several losses, weighted means.
"""

from __future__ import annotations

import pytest
from sampling import part, runs

from models import FAMILIES, family, folders
from tpugraph import testing

pytestmark = pytest.mark.slow

RELATIVE, ABSOLUTE = 1e-3, 1e-5  # global8: TensorFlow 1.15 at 8 times the batch sums in another order
PLAIN = [name for name in folders(FAMILIES, "plain") if name != "gan_estimator"]
GLOBAL8 = [name for name in folders(FAMILIES, "global8") if name != "gan_estimator"]


def test_every_family_is_compared() -> None:
    # GANEstimator trains by three Session.run calls a step in a hook, which no single train op does.
    assert {folder.name for folder in FAMILIES.iterdir()} == {*PLAIN, "gan_estimator"}
    assert set(PLAIN) - set(GLOBAL8) == {"bn_mean", "keras_bn_functional"}  # statistics of 8 cores are no one batch's
    assert len(GLOBAL8) == 29


# The corpus of test_truth trains in loops of 1, 5, 6 and 24 steps; here one step a loop is one family's in three,
# of which the suite has every other and the gate the others.
LOOPS = [(name, 24) for name in GLOBAL8 if runs(True)] + [(name, 1) for name in part(GLOBAL8[::3], 2)]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "iterations"), LOOPS)
def test_eight_cores_train_as_one_on_the_whole_batch(name: str, iterations: int) -> None:
    model = family(name)
    found = testing.run_on_cores(
        model.graph(),
        steps=len(model.losses("global8")),
        num_replicas=8,
        checkpoint=model.checkpoint,
        iterations_per_loop=iterations,
    )
    testing.assert_same_training(found, model.recorded("global8"), relative=RELATIVE, absolute=ABSOLUTE)


@pytest.mark.sampled
@pytest.mark.parametrize("name", part(PLAIN, 2))
def test_one_core_trains_as_the_plain_graph(name: str) -> None:
    model = family(name)
    found = testing.run_on_cores(
        model.graph(),
        steps=len(model.losses("plain")),
        num_replicas=1,
        checkpoint=model.checkpoint,
        iterations_per_loop=7,
    )
    testing.assert_same_training(found, model.recorded("plain"), relative=1e-4, absolute=1e-5)


@pytest.mark.parametrize("name", ["ema", "sgd_assign", "keras_small", "slim_model", "strings_tables"])
def test_this_tensorflow_repeats_the_recording_of_the_plain_graph(name: str) -> None:
    """The reference that other tests use (``testing.run_plain``) is itself checked against TensorFlow 1.15."""
    model = family(name)
    found = testing.run_plain(model.graph(), steps=24, checkpoint=model.checkpoint)
    testing.assert_same_training(found, model.recorded("plain"), relative=1e-4, absolute=1e-5)


def test_gan_with_three_runs_a_step_is_refused_with_its_train_ops() -> None:
    testing.assert_raises_block(
        testing.run_on_cores,
        family("gan_estimator").graph(),
        steps=1,
        num_replicas=8,
        words=["several train ops", "discriminator_train", "generator_train", "--train_op="],
        max_length=1200,
    )
