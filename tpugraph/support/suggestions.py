"""Suggestions: the known names that are nearest to an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

_MOST = 3

GONE = {
    "batch_mode": "the step trains as the plain graph does at the batch that it reads, which the cores split",
    "loss_reduction": "the loss and the gradients are those of the plain graph",
}
"""Options of a conversion in earlier versions, with what holds in their place."""


def near(name: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """The known names that come close, the closest first; case and the kind of dashes count for nothing."""
    plain = {_plain(other): other for other in known}
    return [plain[found] for found in difflib.get_close_matches(_plain(name), list(plain), most, cutoff)]


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """A question after the closest known name, or what to say where none comes close."""
    found = near(name, known)
    return f"did you mean {found[0]}?" if found else otherwise


def near_nodes(name: str, nodes: Collection[str]) -> list[str]:
    """The nodes that come close to a name: of the same last name, else of a name like it, else with a scope that is like it."""
    last = name.rpartition("/")[2]
    alike = [node for node in nodes if last and node.rpartition("/")[2] == last]
    if alike:
        return sorted(alike, key=lambda node: -difflib.SequenceMatcher(None, name, node).ratio())[:_MOST]
    scopes = {scope: node for node in sorted(nodes, key=len, reverse=True) for scope in node.split("/")}
    like = near(last, scopes, most=_MOST, cutoff=0.5)
    as_deep = [node for node in nodes if node.count("/") == name.count("/")]
    return near(name, as_deep) or near(name, nodes, most=_MOST) or list(dict.fromkeys(scopes[s] for s in like))


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
