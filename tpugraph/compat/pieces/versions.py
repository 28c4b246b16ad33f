"""The version that a program is told."""

VERSION = "1.15.5"
"""Of TensorFlow, whose tree the program gets: programs ask whether they run on TensorFlow 1 or 2."""
