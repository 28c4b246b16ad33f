"""Handwriting to learn from: TFRecord files of small pictures of digits, drawn here, in the format of MNIST's records.

A digit is a few strokes, set off, tilted, thickened and speckled at random, always in the same way; no file is read.
"""

from __future__ import annotations

import os

import numpy as np

SIDE = 28
_CORNERS = {"a": (7, 9), "b": (7, 18), "c": (14, 9), "d": (14, 18), "e": (21, 9), "f": (21, 18)}
_STROKES = ["ab bf fe ea", "bf", "ab bd dc ce ef", "ab bd dc df fe", "ac cd bf", "ba ac cd df fe", "ba ae ef fd dc",
            "ab be", "ab bf fe ea cd", "cd ca ab bf"]  # fmt: skip


def draw(digits: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Pictures of digits, uint8 [count, 28, 28]."""
    across, down = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    pictures = np.zeros([len(digits), SIDE, SIDE])
    for picture, digit in zip(pictures, digits, strict=True):
        shift, tilt, width = random.normal(0, 1.2, 2), random.normal(0, 0.12), random.uniform(0.9, 1.7)
        for stroke in _STROKES[digit].split():
            ends = np.array([_CORNERS[corner] for corner in stroke]) + random.normal(0, 0.7, [2, 2])
            (y0, x0), (y1, x1) = ends + shift + np.stack([np.zeros(2), tilt * (14 - ends[:, 0])], 1)
            length = (x1 - x0) ** 2 + (y1 - y0) ** 2
            along = np.clip(((across - x0) * (x1 - x0) + (down - y0) * (y1 - y0)) / length, 0, 1)
            far = np.hypot(across - x0 - along * (x1 - x0), down - y0 - along * (y1 - y0))
            picture[:] = np.maximum(picture, np.clip(1.5 - far / width, 0, 1))
    speckles = random.uniform(0, 0.25, pictures.shape)
    return (255 * np.clip(pictures + speckles, 0, 1)).astype(np.uint8)


def write(path: str, count: int, seed: int) -> str:
    """Write a file of ``count`` examples (image_raw, label), unless it is there; returns its path."""
    import tensorflow as tf

    if os.path.exists(path):
        return path
    random = np.random.default_rng(seed)
    digits = random.integers(0, 10, count)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tf.io.TFRecordWriter(path + ".part") as writer:
        for picture, digit in zip(draw(digits, random), digits, strict=True):
            example = tf.train.Example()
            example.features.feature["image_raw"].bytes_list.value.append(picture.tobytes())
            example.features.feature["label"].int64_list.value.append(int(digit))
            writer.write(example.SerializeToString())
    os.replace(path + ".part", path)
    return path
