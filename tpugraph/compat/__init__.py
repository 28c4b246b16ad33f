"""TensorFlow 1.15's names on today's TensorFlow: programs for Estimator and TPUEstimator run as they were written.

``python -m tpugraph.compat train.py --use_tpu=true`` runs a program unchanged; ``import tpugraph.compat.v1 as tf`` is the
same module tree for a program whose one import line is changed.
"""
