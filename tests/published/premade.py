"""Premade estimators of tf.estimator, in the manner of the guide: wide, deep and a baseline, inputs of arrays."""

import argparse

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", default=32, type=int)
parser.add_argument("--train_steps", default=12, type=int)
parser.add_argument("--model_dir", required=True)


def rows():
    rng = np.random.RandomState(2)
    labels = np.arange(64) % 2
    return {"a": (rng.normal(size=64) + labels).astype(np.float32), "b": rng.normal(size=64).astype(np.float32)}, labels


def main(argv):
    args = parser.parse_args(argv[1:])
    columns = [tf.feature_column.numeric_column(key=key) for key in ("a", "b")]
    x, y = rows()

    def train_input_fn():
        return tf.data.Dataset.from_tensor_slices((dict(x), y)).repeat().batch(args.batch_size)

    eval_input_fn = tf.estimator.inputs.numpy_input_fn(x, y, batch_size=args.batch_size, num_epochs=1, shuffle=False)
    config = tf.estimator.RunConfig(tf_random_seed=1, save_summary_steps=6)
    models = {
        "deep": tf.estimator.DNNClassifier(hidden_units=[8, 4], feature_columns=columns, n_classes=2, config=config,
                                           model_dir=args.model_dir + "/deep"),
        "wide": tf.estimator.LinearClassifier(feature_columns=columns, n_classes=2, config=config,
                                              model_dir=args.model_dir + "/wide"),
        "both": tf.estimator.DNNLinearCombinedRegressor(linear_feature_columns=columns[:1],
                                                        dnn_feature_columns=columns, dnn_hidden_units=[4],
                                                        config=config, model_dir=args.model_dir + "/both"),
        "base": tf.estimator.BaselineClassifier(n_classes=3, config=config, model_dir=args.model_dir + "/base"),
    }  # fmt: skip
    for name in sorted(models):
        model = models[name]
        model.train(input_fn=train_input_fn, steps=args.train_steps)
        found = model.evaluate(input_fn=eval_input_fn)
        print(name, " ".join("%s %.4f" % (key, found[key]) for key in sorted(found)))
    predictions = list(models["deep"].predict(input_fn=eval_input_fn))
    print(len(predictions), sorted(predictions[0]), predictions[0]["classes"])


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.app.run(main)
