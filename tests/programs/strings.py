"""Work of the host in front of the device: strings, casts to fewer bytes, transposed layouts."""

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


def _flat(x):
    return tf.reshape(x, [-1, 4])


MADE: dict[str, Callable[[Any], Any]] = {
    "columns": lambda x: _flat(x)[:, :2],
    "bytes": lambda x: tf.cast(tf.cast(_flat(x) * 10, tf.int8), tf.float32),
    "turned": lambda x: tf.gather(mean(x, 1), tf.range(tf.shape(x)[0])[::-1]),
    "centred": lambda x: mean(x, 1) - mean(x, [0, 1]),
}
"""What becomes of the only input, in front of any variable."""


@program(cases=each(of=MADE))
def made_of_input(rows, of):
    made = of(batch(rows, floats(6, 4)))
    return minimise(mean(tf.square(made * variable("w", int(made.shape[-1])) - np.float32(0.1))))
