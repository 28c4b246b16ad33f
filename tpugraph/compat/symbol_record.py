"""The record of a symbol of TensorFlow 1.15: what stands for it now, how that differs, or why there is nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Symbol:
    """One name of a module."""

    # what stands for it, as module:attribute, or module alone; @ is before a module of the tree itself. "" where
    # nothing does
    home: str = ""
    differs: str = ""  # how that differs from the original; "" where it does not
    why: str = ""  # why there is nothing
    instead: str = ""  # what to use in its place, where there is nothing

    @property
    def state(self) -> str:
        """``works``, ``works with a difference`` or ``not there``."""
        if not self.home:
            return "not there"
        return "works with a difference" if self.differs else "works"


Page = dict[str, Symbol]
"""The symbols of one module, by name."""


def found_in(module: str, names: str, differs: str = "") -> Page:
    """Symbols that a module has, with blanks between; ``old=new`` where it has another name for one."""
    pairs = [word.partition("=") for word in names.split()]
    return {old: Symbol(f"{module}:{new or old}", differs) for old, _, new in pairs}


def gone(names: str, why: str, instead: str) -> Page:
    """Symbols that are not there, all for one reason."""
    return {name: Symbol(why=why, instead=instead) for name in names.split()}
