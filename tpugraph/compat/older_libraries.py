"""Names that Python, NumPy and pandas have dropped since TensorFlow 1.15, put back where a program imports them.

Programs of that time write ``np.int``, ``pd.np`` and ``collections.Mapping``. Only names that are absent are added, and nothing
that is there is changed; a library that is not imported is not looked for.
"""

from __future__ import annotations

import collections.abc
import inspect
import math
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")


def _getargspec(function: Any) -> ArgSpec:
    """The arguments of a function, in the four parts that Python 2 knew."""
    return ArgSpec(*inspect.getfullargspec(function)[:4])


def _of_numpy(module: ModuleType) -> dict[str, Any]:
    return {
        "bool": bool, "int": int, "float": float, "complex": complex, "object": object, "str": str, "long": int, "unicode": str,
        "float_": module.float64, "complex_": module.complex128, "string_": module.bytes_, "unicode_": module.str_,
        "Inf": math.inf, "Infinity": math.inf, "infty": math.inf, "PINF": math.inf, "NINF": -math.inf, "NaN": math.nan,
        "NAN": math.nan, "product": module.prod, "cumproduct": module.cumprod, "alltrue": module.all, "sometrue": module.any,
        "row_stack": module.vstack, "asscalar": lambda array: array.item(),
    }  # fmt: skip


def _of_pandas(module: ModuleType) -> dict[str, Any]:
    import numpy

    return {"np": numpy}


_DROPPED: dict[str, Callable[[ModuleType], dict[str, Any]]] = {
    "collections": lambda module: {name: getattr(collections.abc, name) for name in collections.abc.__all__},
    "fractions": lambda module: {"gcd": math.gcd},
    "inspect": lambda module: {"getargspec": _getargspec, "ArgSpec": ArgSpec},
    "time": lambda module: {"clock": time.perf_counter},
    "numpy": _of_numpy,
    "pandas": _of_pandas,
}


def put_back(module: ModuleType) -> None:
    """Add to a module what it had once; nothing happens to others."""
    dropped = _DROPPED.get(module.__name__)
    if dropped is None:
        return
    for name, value in dropped(module).items():
        if name not in vars(module):
            setattr(module, name, value)


LIBRARIES = frozenset(_DROPPED)
"""The modules that names are put back into."""
