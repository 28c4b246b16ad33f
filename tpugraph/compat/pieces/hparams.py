"""``tf.contrib.training.HParams``: named values of a model, that a text such as ``rate=0.1,layers=[1,2]`` may change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_ASSIGNMENT = re.compile(r"\s*(?P<name>[A-Za-z]\w*)(?:\[(?P<index>\d+)\])?\s*=\s*(?P<value>\[[^\]]*\]|[^,]*)\s*(?:,|$)")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def parse_values(values: str, type_map: Mapping[str, type], ignore_unknown: bool = False) -> dict[str, Any]:
    """The values that a text sets.

    Args:
        values: such as ``rate=0.1,layers=[1,2],sizes[0]=3``.
        type_map: the type of each name.
        ignore_unknown: leave out names that the map does not hold.

    Returns:
        A value, a list, or for ``name[i]=value`` a dict from index to value, by name.

    Raises:
        ValueError: a text that cannot be read, a name that is not known or that is set twice.
    """
    found: dict[str, Any] = {}
    place = 0
    while place < len(values):
        match = _ASSIGNMENT.match(values, place)
        if match is None:
            raise ValueError(f"Malformed hyperparameter value: {values[place:]}")
        place = match.end()
        name, index, text = match["name"], match["index"], match["value"].strip()
        if name not in type_map:
            if ignore_unknown:
                continue
            raise ValueError(f"Unknown hyperparameter type for {name}")
        kind = type_map[name]
        if index is not None:
            found.setdefault(name, {})[int(index)] = _read(name, kind, text)
        elif name in found:
            raise ValueError(f"Multiple assignments to variable '{name}' in {values}")
        elif text.startswith("["):
            inner = [part.strip() for part in text[1:-1].split(",")]
            found[name] = [_read(name, kind, part) for part in inner if part]
        else:
            found[name] = _read(name, kind, text)
    return found


def _read(name: str, kind: type, text: str) -> Any:
    try:
        if kind is bool:
            return _TRUTH[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        raise ValueError(f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{text}'") from None


class HParams:
    """Named values, as attributes; a list has elements of one type.

    Raises:
        ValueError: a name that is taken already, or an empty list.
    """

    def __init__(self, model_structure: Any = None, **kwargs: Any) -> None:
        self._types: dict[str, tuple[type, bool]] = {}
        self._model_structure = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a value, which sets the type of its name."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        listed = isinstance(value, (list, tuple))
        if listed and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
        self._types[name] = (type(value[0]) if listed else type(value)), listed
        setattr(self, name, list(value) if listed else value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Change a value.

        Raises:
            ValueError: a list where there was none, the other way round, or another type.
            KeyError: a name that is not known.
        """
        kind, listed = self._types[name]
        if isinstance(value, list) != listed:
            must = "Must pass a list for" if listed else "Must not pass a list for single-valued"
            raise ValueError(f"{must} parameter: {name}")
        setattr(self, name, [_cast(name, kind, v) for v in value] if listed else _cast(name, kind, value))

    def del_hparam(self, name: str) -> None:
        if hasattr(self, name):
            delattr(self, name)
            del self._types[name]

    def parse(self, values: str) -> HParams:
        """Change values by a text; see :func:`parse_values`."""
        found = parse_values(values, {name: kind for name, (kind, _) in self._types.items()})
        return self.override_from_dict({name: self._indexed(name, value) for name, value in found.items()})

    def _indexed(self, name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        whole = list(getattr(self, name))
        for index, one in value.items():
            whole[index] = one
        return whole

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> HParams:
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
        """The values as a JSON object; functions are left out."""
        kept = {name: value for name, value in self.values().items() if not isinstance(value, Callable)}  # type: ignore[arg-type]
        return json.dumps(kept, indent=indent, separators=separators, sort_keys=sort_keys)

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._types}

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or the default where the name is not known."""
        return getattr(self, key) if key in self._types else default

    def get_model_structure(self) -> Any:
        return self._model_structure

    def set_model_structure(self, model_structure: Any) -> None:
        self._model_structure = model_structure

    def __contains__(self, key: str) -> bool:
        return key in self._types

    def __str__(self) -> str:
        return str(sorted(self.values().items()))

    def __repr__(self) -> str:
        return f"HParams({self})"


def _cast(name: str, kind: type, value: Any) -> Any:
    if kind is type(None) or value is None or isinstance(value, kind):
        return value
    whole = isinstance(value, (bool, str)) or kind in (bool, str) or (kind is int and value != int(value))
    if whole:
        raise ValueError(f"Could not cast hparam '{name}' of type '{kind.__name__}' from value {value!r}")
    return kind(value)
