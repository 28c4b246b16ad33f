"""The largest batch that fits."""

import pytest

from tpugraph.runtime import batch_search
from tpugraph.runtime.batch_search import MOST, Try

MEMORY = 16 * 2**30


@pytest.mark.parametrize("begin", [1, 32, 4096])
@pytest.mark.parametrize(("base", "per_row"), [(10**6, 10**6), (0, 3 * 10**9), (10**9, 12_345), (10**9, 10**8 + 7)])
def test_the_search_finds_the_largest_that_fits(begin: int, base: int, per_row: int) -> None:
    tried: list[int] = []

    def attempt(rows: int) -> Try:
        assert rows not in tried
        tried.append(rows)
        needed = base + per_row * (-(-rows // 8) * 8 if rows > 8 else rows)
        return Try(rows, needed, needed <= MEMORY)

    found = batch_search.search(begin, attempt, MEMORY)
    exact = (MEMORY - base) // per_row
    assert found == exact if exact < 8 else exact - 8 - exact // 64 < found <= exact
    assert len(tried) <= 14


def test_memory_that_jumps_is_found_as_well() -> None:
    """A compiler that spends more on some batches than a line would say."""
    tried: list[int] = []

    def attempt(rows: int) -> Try:
        tried.append(rows)
        return Try(rows, rows * 10**6 if rows < 1000 else rows * 10**8, rows < 1000)

    assert 980 <= batch_search.search(32, attempt, MEMORY) < 1000
    assert len(tried) <= 20


def test_nothing_fits_and_all_fits() -> None:
    assert batch_search.search(32, lambda rows: Try(rows, MEMORY + rows, False), MEMORY) == 0
    assert batch_search.search(32, lambda rows: Try(rows, 10, True), MEMORY) == MOST
