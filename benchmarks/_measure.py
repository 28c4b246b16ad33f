"""What the benchmarks share: interleaved repetitions, medians, one line per figure."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def interleave(parts: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Measure each part in turn, ``repeats`` times, so that all see the same machine."""
    found: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(repeats):
        for name, part in parts.items():
            found[name].append(part())
    return found


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cpu_seconds(work: Callable[[], object]) -> float:
    """How much CPU time it takes, on a heap that is free of garbage."""
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def ratio(found: Mapping[str, list[float]], above: str, below: str) -> float:
    """The median of the ratios of the pairs that were measured one right after the other."""
    return statistics.median(a / b for a, b in zip(found[above], found[below], strict=True))


def show(found: Mapping[str, list[float]], unit: str) -> None:
    """Median, least and most of each part."""
    for name, values in found.items():
        print(f"{name:<28} median {statistics.median(values):10.4g} {unit}   ({min(values):.4g} to {max(values):.4g})")


def verdict(name: str, value: float, bound: float, *, most: bool) -> int:
    """Print the figure against its bound; returns the exit code."""
    good = value <= bound if most else value >= bound
    print(f"{name}: {value:.2f} ({'at most' if most else 'at least'} {bound:g}: {'holds' if good else 'MISSED'})")
    print(json.dumps({"name": name, "value": round(value, 4), "bound": bound, "holds": good}))
    return 0 if good else 1


def child(arguments: list[str], *, limit: float = 900) -> str:
    """The output of this Python with these arguments."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=limit, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(arguments[:2])} failed:\n{done.stderr[-2000:]}")
    return done.stdout
