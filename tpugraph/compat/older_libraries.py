"""Names that Python, NumPy and pandas have dropped since TensorFlow 1.15, put back where a program imports them.

Programs of that time write ``np.int``, ``pd.np``, ``collections.Mapping`` and ``array.tostring()``. Only names that are absent are
added, and nothing that is there is changed, but ``np.fromstring``, which reads bytes again; a library that is not imported is not
looked for.
"""

from __future__ import annotations

import collections.abc
import ctypes
import gc
import importlib
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


def _fromstring(module: ModuleType) -> Callable[..., Any]:
    text = module.fromstring

    def fromstring(string: Any, dtype: Any = float, count: int = -1, sep: str = "", **named: Any) -> Any:
        """The numbers in a text, or in bytes, which NumPy leaves to ``frombuffer``."""
        if sep:
            return text(string, dtype, count, sep, **named)
        return module.frombuffer(string.encode("latin-1") if isinstance(string, str) else string, dtype, count).copy()

    return fromstring


def _itemset(self: Any, *words: Any) -> None:
    """``array.itemset(*index, value)``; a whole number counts through the elements in order."""
    *parts, value = words
    index = parts[0] if len(parts) == 1 else tuple(parts)
    if isinstance(index, tuple) and index:
        self[index] = value
    else:
        self.flat[index or 0] = value


def _of_numpy(module: ModuleType) -> dict[Any, dict[str, Any]]:
    names = {
        "bool": bool, "int": int, "float": float, "complex": complex, "object": object, "str": str, "long": int, "unicode": str,
        "float_": module.float64, "complex_": module.complex128, "string_": module.bytes_, "unicode_": module.str_,
        "Inf": math.inf, "Infinity": math.inf, "infty": math.inf, "PINF": math.inf, "NINF": -math.inf, "NaN": math.nan,
        "NAN": math.nan, "product": module.prod, "cumproduct": module.cumprod, "alltrue": module.all, "sometrue": module.any,
        "row_stack": module.vstack, "asscalar": lambda array: array.item(),
    }  # fmt: skip
    methods = {
        "tostring": module.ndarray.tobytes,
        "ptp": lambda self, *words, **named: module.ptp(self, *words, **named),
        "newbyteorder": lambda self, *order: self.view(self.dtype.newbyteorder(*order)),
        "itemset": _itemset,
    }
    return {module: names, module.ndarray: methods, module.generic: {"tostring": module.generic.tobytes}}


_DROPPED: dict[str, Callable[[ModuleType], dict[Any, dict[str, Any]]]] = {
    "collections": lambda module: {module: {name: getattr(collections.abc, name) for name in collections.abc.__all__}},
    "fractions": lambda module: {module: {"gcd": math.gcd}},
    "inspect": lambda module: {module: {"getargspec": _getargspec, "ArgSpec": ArgSpec}},
    "time": lambda module: {module: {"clock": time.perf_counter}},
    "array": lambda module: {module.array: {"tostring": module.array.tobytes, "fromstring": module.array.frombytes}},
    "numpy": _of_numpy,
    "pandas": lambda module: {module: {"np": importlib.import_module("numpy")}},
}
LIBRARIES = frozenset(_DROPPED)
"""The modules that names are put back into."""


def put_back(module: ModuleType) -> None:
    """Add to one of :data:`LIBRARIES`, and to classes of it, what they had once."""
    for owner, names in _DROPPED[module.__name__](module).items():
        names = {name: value for name, value in names.items() if name not in vars(owner)}
        if isinstance(owner, type):  # written in C: Python lets nobody write to its namespace in the ordinary way
            next(part for part in gc.get_referents(owner.__dict__) if isinstance(part, dict)).update(names)
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))  # or Python goes on with what it looked up before
        else:
            vars(owner).update(names)
    if module.__name__ == "numpy" and module.fromstring.__module__ != __name__:
        module.fromstring = _fromstring(module)  # type: ignore[attr-defined]
