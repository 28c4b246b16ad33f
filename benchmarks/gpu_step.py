"""A compiled step on PJRT devices against the same step written by hand in jax: a CNN and a 4-layer transformer.

python benchmarks/gpu_step.py [--bundles DIR] [--platform gpu] [--repeats 7] [--tiny]

Both sides start from the same weights, run whole loops on batches that are on the device already, and must give the same
losses first. Bundles that DIR lacks are made, which takes TensorFlow; with them it runs on a machine that has jax alone.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _measure
import numpy as np
from _jax_steps import STEPS

from tpugraph.runtime.pjrt import bundle
from tpugraph.runtime.pjrt.bundle import Bundle
from tpugraph.runtime.pjrt.devices import Devices

LOOP = 20
BOUND = 0.9


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=Path, default=None)
    parser.add_argument("--platform", default="gpu", choices=["cpu", "gpu", "tpu"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tiny", action="store_true", help="small batches, to see that it works")
    options = parser.parse_args()
    why_not = _missing(options.platform)
    if why_not:
        print(f"NOT RUN: {why_not}; the ratio of PJRT to a hand-written step was not measured")
        return 0
    with tempfile.TemporaryDirectory() as own:
        folder = options.bundles or Path(own)
        return max(_compare(name, folder, options) for name in STEPS)


def _missing(platform: str) -> str:
    """Why nothing can be measured here, "" where it can."""
    try:
        import jax
    except ImportError:
        return "jax is not installed (python -m pip install 'tpugraph[pjrt]')"
    try:
        jax.devices(platform)
    except RuntimeError as error:
        return f"jax sees no {platform} here ({str(error).splitlines()[0][:120]})"
    return ""


def _compare(name: str, folder: Path, options: argparse.Namespace) -> int:
    held = bundle.read(_made(name, folder, tiny=options.tiny))
    batches = _batches(held)
    compiled = _compiled(held, batches, options.platform)
    by_hand = _by_hand(name, held, batches, options.platform)
    np.testing.assert_allclose(compiled(), by_hand(), rtol=1e-2, err_msg=f"{name}: the two sides train differently")
    compiled(), by_hand()
    found = _measure.interleave(
        {"PJRT": lambda: LOOP / _measure.seconds(compiled), "by hand in jax": lambda: LOOP / _measure.seconds(by_hand)},
        options.repeats,
    )
    print(f"{name}: loops of {LOOP} on {options.platform}, infeed {[v.shape[1:] for v in _infeed(held)]}")
    _measure.show(found, "steps/s")
    value = _measure.ratio(found, "PJRT", "by hand in jax")
    return _measure.verdict(f"{name}: steps per second, PJRT / by hand", value, BOUND, most=False)


def _made(name: str, folder: Path, *, tiny: bool) -> Path:
    """The bundle of a model; made where it is missing, which takes TensorFlow."""
    path = folder / f"{name}{'_tiny' if tiny else ''}.tpugraph"
    if not path.exists():
        import _tf_steps

        folder.mkdir(parents=True, exist_ok=True)
        _tf_steps.make(name, tiny=tiny, loop=LOOP).save(path)
    return path


def _infeed(held: Bundle) -> list[Any]:
    return [value for value in held.module.arguments if value.kind == "infeed"]


def _batches(held: Bundle) -> list[np.ndarray[Any, Any]]:
    """Of each input the batches of a loop: noise, or numbers of classes."""
    random = np.random.default_rng(1)
    return [random.normal(size=v.shape).astype(v.dtype) if v.dtype == "float32" else random.integers(0, 10, v.shape, v.dtype)
            for v in _infeed(held)]  # fmt: skip


def _compiled(held: Bundle, batches: list[Any], platform: str) -> Callable[[], np.ndarray[Any, Any]]:
    devices = Devices(held.module, platform=platform)
    devices.put(held.variables)
    staged = devices.stage([batches])
    assert held.loss is not None

    def run() -> np.ndarray[Any, Any]:
        sent, _ = devices.run(LOOP, (0, 0), staged)
        return sent[0][held.loss or 0].reshape(-1)

    return run


def _by_hand(name: str, held: Bundle, batches: list[Any], platform: str) -> Callable[[], np.ndarray[Any, Any]]:
    import jax

    device = jax.devices(platform)[0]
    start, step = STEPS[name]
    state = jax.device_put(start(held.variables), device)
    fed = jax.device_put(tuple(batches), device)

    @functools.partial(jax.jit, donate_argnums=0)
    def loop(state: Any, fed: Any) -> Any:
        return jax.lax.scan(step, state, fed)

    def run() -> np.ndarray[Any, Any]:
        nonlocal state
        state, losses = loop(state, fed)
        return np.asarray(losses)

    return run


if __name__ == "__main__":
    raise SystemExit(main())
