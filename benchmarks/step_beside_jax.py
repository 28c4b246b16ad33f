"""A step by engine="xla" beside the same step by hand under jax.jit, sharded alike: a CNN and a 4-layer transformer.

python benchmarks/step_beside_jax.py [--devices 2]
python benchmarks/step_beside_jax.py --platform gpu --devices 1 --loop 20 [--bundles DIR]

Rows are divided among the devices, variables are whole on each. All sides begin with the same weights, take the same rows
from the host's memory in each call, and must give the same losses first. By hand the steps of a call are a lax.scan, and on
the CPU also a call without a loop, where XLA's convolutions are quicker; the better one counts. With --bundles the compiled
step is measured without a session, so that a machine needs jax alone; bundles that DIR lacks are made, which takes TensorFlow.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import _measure
import numpy as np
from _jax_steps import INPUTS, STEPS

from tpugraph.runtime.pjrt import bundle
from tpugraph.runtime.pjrt.devices import Devices
from tpugraph.xla.mesh import Layout

BOUND = 0.9
ROWS = {"cnn": (64, 512), "transformer": (4, 32)}  # of a global batch, on virtual devices of the CPU and on real ones
CALLS = 3  # of the devices, in one measurement

Array = np.ndarray[Any, Any]
Run = Callable[[int], Sequence[float]]
"""Runs so many calls and returns the losses."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--platform", default="cpu", choices=["cpu", "gpu", "tpu"])
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--models", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--rows", type=int, default=None, help="of a global batch")
    parser.add_argument("--loop", type=int, default=5, help="steps of a call")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--bundles", type=Path, default=None)
    options = parser.parse_args()
    why_not = _missing(options.platform, options.devices)
    if why_not:
        print(f"NOT RUN: {why_not}; the ratio of engine=xla to a step by hand was not measured")
        return 0
    of_platform = 0 if options.platform == "cpu" else 1
    return max(_compare(name, options.rows or ROWS[name][of_platform], options) for name in options.models)


def _missing(platform: str, devices: int) -> str:
    """Why nothing can be measured here, "" where it can."""
    try:
        import jax
    except ImportError:
        return "jax is not installed (python -m pip install 'tpugraph[pjrt]')"
    if platform == "cpu":
        jax.config.update("jax_num_cpu_devices", devices)
    try:
        found = len(jax.devices(platform))
    except RuntimeError as error:
        return f"jax sees no {platform} here ({str(error).splitlines()[0][:120]})"
    return f"jax sees {found} of {devices} devices" if found < devices else ""


def _compare(name: str, rows: int, options: argparse.Namespace) -> int:
    random = np.random.default_rng(1)
    batches = [
        random.normal(size=(options.loop, rows, *shape)).astype(dtype)
        if dtype == "float32"
        else random.integers(0, 10, (options.loop, rows, *shape), dtype)
        for dtype, shape in INPUTS[name]
    ]
    variables, xla = _alone(name, batches, options) if options.bundles else _session(name, batches, options)
    by_hand = {"by hand, lax.scan": _by_hand(name, variables, batches, options, unroll=False)}
    if options.platform == "cpu":
        by_hand["by hand, no loop"] = _by_hand(name, variables, batches, options, unroll=True)
    wanted = xla(CALLS)
    for side, run in by_hand.items():
        np.testing.assert_allclose(run(CALLS), wanted, rtol=1e-2, err_msg=f"{name}: {side} trains otherwise")
    found = _measure.interleave(
        {side: functools.partial(_rate, run, options.loop) for side, run in {"engine=xla": xla, **by_hand}.items()},
        options.repeats,
    )
    best = max(by_hand, key=lambda side: statistics.median(found[side]))
    print(f"{name}: {rows} rows, {options.loop} steps a call, {options.devices} devices of {options.platform}")
    _measure.show(found, "steps/s")
    value = _measure.ratio(found, "engine=xla", best)
    return _measure.verdict(f"{name}: steps per second, engine=xla / {best}", value, BOUND, most=False)


def _rate(run: Run, loop: int) -> float:
    return CALLS * loop / _measure.seconds(lambda: run(CALLS))


def _layout(options: argparse.Namespace) -> Layout:
    return replace(Layout.parse(f"data:{options.devices}"), tf32=True)  # as jax has it


def _session(name: str, batches: Sequence[Array], options: argparse.Namespace) -> tuple[Mapping[str, Array], Run]:
    """A whole session: the graph's own input pipeline, the steps, and the host's part after them."""
    import _tf_steps

    from tpugraph.runtime.session import TPUSession

    session = TPUSession(_tf_steps.make(name, batches), engine="xla", platform=options.platform,
                         mesh=_layout(options))  # fmt: skip
    session.initialize()
    return session.values(), lambda calls: session.train(calls * options.loop)


def _alone(name: str, batches: Sequence[Array], options: argparse.Namespace) -> tuple[Mapping[str, Array], Run]:
    """The compiled step of a bundle, without a session."""
    path = options.bundles / f"{name}_{'_'.join(map(str, batches[0].shape[:2]))}.tpugraph"
    if not path.exists():
        import _tf_steps

        from tpugraph.runtime.pjrt import bundling

        options.bundles.mkdir(parents=True, exist_ok=True)
        bundling.make(_tf_steps.make(name, batches)).save(path)
    held = bundle.read(path)
    devices = Devices(held.module, _layout(options), platform=options.platform)
    devices.put(held.variables)

    def call() -> list[float]:
        sent, _ = devices.run(options.loop, (0, 0), devices.stage([batches]))
        return sent[0][held.loss or 0].reshape(-1).tolist()

    return held.variables, lambda calls: [loss for _ in range(calls) for loss in call()]


def _by_hand(name: str, variables: Mapping[str, Array], batches: Sequence[Array], options: argparse.Namespace, *,
             unroll: bool) -> Run:  # fmt: skip
    import jax

    mesh = jax.sharding.Mesh(np.array(jax.devices(options.platform)[: options.devices]), ("data",))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    by_rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "data"))
    start, step = STEPS[name]
    state = jax.device_put(start(variables), whole)

    @functools.partial(jax.jit, donate_argnums=0)
    def loop(state: Any, fed: Any) -> Any:
        return jax.lax.scan(step, state, fed, unroll=unroll)

    def run(calls: int) -> list[float]:
        nonlocal state
        found = []  # read behind the last call, so that rows go over while the devices run
        for _ in range(calls):
            state, losses = loop(state, jax.device_put(tuple(batches), by_rows))
            found.append(losses)
        return [loss for losses in found for loss in np.asarray(losses).tolist()]

    return run


if __name__ == "__main__":
    raise SystemExit(main())
