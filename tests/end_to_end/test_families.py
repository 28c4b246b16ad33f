"""Real graphs of other model families train as TensorFlow 1.15's Estimator did.

Hand-made optimizers, sums and L2, BERT, Keras models, embeddings with each sparse optimizer, partitioned variables, several
optimizers in a step, weight averages, tables and strings, data-dependent loops of both kinds, scans, conds, slim and
contrib models, a Scaffold's own saver, heads with several losses, weighted means.
"""

import pytest
from sampling import part, runs

from models import FAMILIES, family, folders
from tpugraph import testing

pytestmark = pytest.mark.slow

PLAIN = [name for name in folders(FAMILIES, "plain") if name != "gan_estimator"]
GLOBAL8 = [name for name in folders(FAMILIES, "global8") if name != "gan_estimator"]


def test_every_family_is_compared() -> None:
    # GANEstimator trains by three Session.run calls a step in a hook, which no single train op does.
    assert {folder.name for folder in FAMILIES.iterdir()} == {*PLAIN, "gan_estimator"}
    assert set(PLAIN) - set(GLOBAL8) == {"bn_mean", "keras_bn_functional"}  # recorded at their own batch alone
    assert len(GLOBAL8) == 29


CASES = [
    (name, cores, (24, 7, 1)[(place + at) % 3])
    for place, name in enumerate(PLAIN)
    for at, cores in enumerate(cores for cores in (4, 2, 8, 1) if family(name).golden["batch"] % cores == 0)
    if runs(at == place % 2)
]
"""Name, cores and steps per loop; the suite has one number of cores of each family."""


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "cores", "iterations"), CASES)
def test_cores_train_as_the_plain_graph(name: str, cores: int, iterations: int) -> None:
    trained(name, "plain", cores, iterations)


@pytest.mark.sampled
@pytest.mark.parametrize("name", part(GLOBAL8, 3))
def test_eight_cores_train_on_eight_times_the_batch(name: str) -> None:
    trained(name, "global8", 8, 24)


def trained(name: str, mode: str, cores: int, iterations: int) -> None:
    model = family(name)
    found = testing.run_on_cores(model.graph(), steps=len(model.losses(mode)), num_replicas=cores,
                                 checkpoint=model.checkpoint, iterations_per_loop=iterations, **model.options(mode))  # fmt: skip
    model.assert_recorded(found, mode)


@pytest.mark.parametrize("name", ["ema", "sgd_assign", "keras_small", "slim_model", "strings_tables"])
def test_this_tensorflow_repeats_the_recording_of_the_plain_graph(name: str) -> None:
    """The reference that other tests use (``testing.run_plain``) is itself checked against TensorFlow 1.15."""
    model = family(name)
    found = testing.run_plain(model.graph(), steps=24, checkpoint=model.checkpoint)
    testing.assert_same_training(found, model.recorded("plain"), relative=1e-4, absolute=1e-5)


def test_gan_with_three_runs_a_step_is_refused_with_its_train_ops() -> None:
    testing.assert_raises_block(testing.run_on_cores, family("gan_estimator").graph(), steps=1, num_replicas=4,
                                words=["several train ops", "discriminator_train", "generator_train", "--train_op="],
                                max_length=1200)  # fmt: skip
