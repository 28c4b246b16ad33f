"""``tpugraph diff``: how two graphs differ by what they mean."""

from __future__ import annotations

from dataclasses import asdict

from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.ir import graphdef
from tpugraph.ir.difference import Difference, difference

_MOST = 20


def run(flags: Parsed, console: Console) -> Outcome:
    first, second = graphdef.load(flags.model), graphdef.load(flags.other)
    found = difference(first, second)
    console.say(f"{flags.model}: {len(first):,} nodes; {flags.other}: {len(second):,} nodes")
    for line in lines(found, len(second) if flags["all"] else _MOST):
        console.say(line)
    result = asdict(found) | {"same": not found, "nodes": [len(first), len(second)]}
    return Outcome(result, code=1 if found else 0)


def lines(found: Difference, most: int) -> list[str]:
    """The difference, readable: a summary, then at most so many nodes of each kind."""
    if not found:
        return ["the same graph"]
    said = [
        *_counted("added", found.added_ops),
        *_counted("removed", found.removed_ops),
        *_counted("changed", found.kinds_changed(), total=len(found.changed)),
    ]
    for (old, new), count in list(found.scopes_renamed().items())[:most]:
        said.append(f"renamed     {old} -> {new}" + (f" ({count:,} nodes)" if count > 1 else ""))
    said += [f"function    {name}: {what}" for name, what in found.functions.items()]
    changes = [line for change in found.changed[:most]
               for line in (f"~ {change.node} ({change.op})", *(f"    {text}" for _, text in change.facts))]  # fmt: skip
    for kind, count, shown in (
        ("changed", len(found.changed), changes),
        ("removed", len(found.removed), [f"- {text}" for text in list(found.removed.values())[:most]]),
        ("added", len(found.added), [f"+ {text}" for text in list(found.added.values())[:most]]),
    ):
        said += ["", *shown] if shown else []
        if count > most:
            said.append(f"  ... and {count - most:,} more that were {kind}; --all lists all")
    return said


def _counted(label: str, counts: dict[str, int], total: int | None = None) -> list[str]:
    if not counts:
        return []
    total = sum(counts.values()) if total is None else total
    shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:8])
    return [f"{label:<12}{total:,} node{'' if total == 1 else 's'}: {shown}{', ...' if len(counts) > 8 else ''}"]
