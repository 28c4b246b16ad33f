import tensorflow as tf

from models import assert_same_on_cores, check, finish, linear, tf1
from tpugraph.analysis.step import Partitioned
from tpugraph.passes.partition import Partition

TWO = Partition(num_replicas=2)


def test_golden() -> None:
    assert check(TWO, "step", num_replicas=2).result(Partitioned).rows == 2
    check(TWO, "clip", num_replicas=2)


def test_a_core_with_one_row_keeps_it_where_all_dimensions_of_one_are_squeezed() -> None:
    def build(rows: int) -> None:
        features, targets, weights = linear(rows)
        loss = tf.reduce_mean(tf.square(tf.squeeze(features @ weights) - targets), name="loss")
        finish(loss, tf1.train.GradientDescentOptimizer(0.1))

    assert_same_on_cores(build, rows=1, combined=1)
