"""The canned estimators of ``tf.estimator``: linear models, deep ones, both together, and baselines."""
