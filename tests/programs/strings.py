"""Work of the host in front of the device: words that are hashed, time first."""

from .parts import *

_WORDS = np.array([b"red", b"green", b"blue", b"deep sea", b""], object)


def words(*shape, seed=0) -> np.ndarray[Any, Any]:
    """A column of the data: words, five in all."""
    return _WORDS[np.random.default_rng(seed).integers(0, len(_WORDS), (COUNT, *shape))]


def looked_up(text):
    return tf.nn.embedding_lookup(variable("table", 9, 3), tf.strings.to_hash_bucket_fast(text, 9))


@program(words(3, seed=1), floats(seed=3))
def words_time_first(a, y):
    h = total(looked_up(tf.transpose(a)) * variable("weight", 3, 1, 1), 0)
    return minimise(mean(tf.square(column(h, 3) - y)))
