"""Parts of rows that are put together: each core keeps its own where nothing asks for their order, as joined_entries finds."""

from __future__ import annotations

from typing import Any

import pytest

from programs import PROGRAMS
from programs.harness import converted, trace
from tpugraph.analysis.placement_rules import joined_entries, joining_placements


@pytest.mark.parametrize(
    ("name", "gathered"),
    [
        ("parts_beside_parts_kinds_3", True),
        ("parts_beside_parts_kinds_turned_3", True),
        ("picked_by_where_twice_sums_3", False),
        ("picked_by_where_twice_squares_3_open", False),
        ("both_ends_of_chosen_pairs_three_rows", True),
    ],
)
def test_entries_are_gathered_where_their_order_counts(
    name: str, gathered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []

    def asked(*given: Any) -> bool:
        found.append(joined_entries.joined_in_any_order(*given))
        return found[-1]

    monkeypatch.setattr(joining_placements, "joined_in_any_order", asked)
    report = converted(trace(PROGRAMS[name], 3), 1, 4, {}).report
    words = report["collectives"]["combined"].values()
    assert (False in found) is any("the entries of all cores" in text for text in words) is gathered, words
