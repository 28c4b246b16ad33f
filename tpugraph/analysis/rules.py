"""Rules by op type: a registry that each analysis over op types has one of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_Rule = TypeVar("_Rule", bound=Callable[..., object])


class Rules(dict[str, _Rule]):
    """The rules of an analysis by op type; one registered for no op type is that for all others."""

    def rule(self, names: str) -> Callable[[_Rule], _Rule]:
        """Register a function for op types, whose names are separated by spaces; each has one rule.

        Raises:
            ValueError: an op type has a rule already.
        """

        def register(function: _Rule) -> _Rule:
            kinds = names.split() or [""]
            if ruled := self.keys() & kinds:
                raise ValueError(f"{', '.join(sorted(ruled))} has a rule already")
            self.update(dict.fromkeys(kinds, function))
            return function

        return register

    def of(self, op: str) -> _Rule:
        """The rule of an op type."""
        return self.get(op) or self[""]
