"""The steps of step_beside_jax.py by hand in jax: how a state is made of a bundle's variables, and one step as lax.scan takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

LAYERS, HEADS, WIDTH, LENGTH, CLASSES = 4, 8, 512, 256, 1000
RATE = 1e-3


def _weights(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The trained variables: no counter, no state of the optimizer."""
    return {name: value for name, value in variables.items() if name.startswith("model/") and "Adam" not in name}


# --------------------------------------------------------------------------- the CNN, by gradient descent


def _cnn_start(variables: Mapping[str, Any]) -> Any:
    return _weights(variables)


def _cnn_step(weights: Any, fed: Any) -> Any:
    import jax

    loss, gradients = jax.value_and_grad(_cnn_loss)(weights, *fed)
    return {name: value - RATE * gradients[name] for name, value in weights.items()}, loss


def _cnn_loss(w: Any, images: Any, labels: Any) -> Any:
    import jax

    x = images.reshape(-1, 28, 28, 1)
    for name in ("model/conv_0", "model/conv_1"):
        x = jax.lax.conv_general_dilated(
            x, w[f"{name}/kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + w[f"{name}/bias"])
        x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
    x = jax.nn.relu(_dense(w, "model/dense_0", x.reshape(x.shape[0], -1)))
    return _cross_entropy(_dense(w, "model/dense_1", x), labels)


# --------------------------------------------------------------------------- the transformer, by Adam


def _transformer_start(variables: Mapping[str, Any]) -> Any:
    weights = _weights(variables)
    zeros = {name: np.zeros_like(value) for name, value in weights.items()}
    return weights, zeros, {name: value.copy() for name, value in zeros.items()}, np.float32(0)


def _transformer_step(state: Any, fed: Any) -> Any:
    import jax
    import jax.numpy as jnp

    weights, first, second, count = state
    loss, g = jax.value_and_grad(_transformer_loss)(weights, *fed)
    count = count + 1
    rate = RATE * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    first = {n: 0.9 * first[n] + 0.1 * g[n] for n in weights}
    second = {n: 0.999 * second[n] + 0.001 * g[n] * g[n] for n in weights}
    weights = {n: w - rate * first[n] / (jnp.sqrt(second[n]) + 1e-8) for n, w in weights.items()}
    return (weights, first, second, count), loss


def _transformer_loss(w: Any, tokens: Any, labels: Any) -> Any:
    import jax

    x = w["model/embedding"][tokens]
    for layer in range(LAYERS):
        x = x + _attention(w, f"model/layer_{layer}", _normal(x))
        hidden = jax.nn.relu(_dense(w, f"model/layer_{layer}/up", _normal(x)))
        x = x + _dense(w, f"model/layer_{layer}/down", hidden)
    return _cross_entropy(_dense(w, "model/logits", _normal(x).mean(1)), labels)


def _attention(w: Any, name: str, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    rows, length, width = x.shape
    q, k, v = (_dense(w, f"{name}/{part}", x).reshape(rows, length, HEADS, -1).swapaxes(1, 2) for part in "qkv")
    weights = jax.nn.softmax(jnp.matmul(q, k.swapaxes(2, 3)) * (width // HEADS) ** -0.5)
    return _dense(w, f"{name}/o", jnp.matmul(weights, v).swapaxes(1, 2).reshape(rows, length, width))


def _normal(x: Any) -> Any:
    import jax

    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-6)


def _dense(w: Any, name: str, x: Any) -> Any:
    return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]


def _cross_entropy(logits: Any, labels: Any) -> Any:
    import jax

    return -(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, logits.shape[-1])).sum(-1).mean()


INPUTS = {
    "cnn": (("float32", (784,)), ("int32", ())),
    "transformer": (("int32", (LENGTH,)), ("int32", ())),
}
"""Of each model dtype and shape of an example: images or tokens, and classes."""

STEPS = {"cnn": (_cnn_start, _cnn_step), "transformer": (_transformer_start, _transformer_step)}
