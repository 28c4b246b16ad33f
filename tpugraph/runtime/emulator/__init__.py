"""The emulator: a TPU graph lowered to ordinary TensorFlow ops, so that N cores run on this machine."""
