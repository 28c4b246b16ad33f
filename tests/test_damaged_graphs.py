"""Damaged graphs through the commands: those that failed once, and new ones; the campaign behind it is tools/campaigns/graphs.py."""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools" / "campaigns"))

import graphs  # noqa: E402
import mutations  # noqa: E402

FAULTS = sorted((ROOT / "tests" / "data" / "faults").glob("*.pb.gz"))
SECONDS = 8.0


@pytest.fixture(scope="module")
def judge() -> Iterator[graphs.Judge]:
    with graphs.Judge(seconds=60) as held:  # a machine at work is slower than the 10 s of a campaign
        yield held


@pytest.mark.parametrize("fault", FAULTS, ids=lambda path: path.name.removesuffix(".pb.gz"))
def test_what_failed_once_gives_a_result_or_one_block(fault: Path, judge: graphs.Judge) -> None:
    assert judge.failure(gzip.decompress(fault.read_bytes()), ("inspect", "convert")) is None


def test_new_mutants_give_a_result_or_one_block(judge: graphs.Judge) -> None:
    sound, started, count = graphs.Sound(), time.monotonic(), 0
    for seed, base, converted in graphs.mutants(seed=20261123, first=0, count=10_000):
        meta = sound.graph(base, converted=converted)
        data = mutations.mutant(meta, seed)
        failure = judge.failure(data, ("inspect",) if converted else ("inspect", "convert"))
        assert failure is None, f"mutant {seed} of {base}: {failure}"
        count += 1
        if time.monotonic() - started > SECONDS:
            break
    assert count >= 10


def test_a_mutant_is_the_same_for_the_same_seed() -> None:
    meta = graphs.Sound().graph("corpus/iris_dnn", converted=False)
    assert mutations.mutant(meta, "1/2") == mutations.mutant(meta, "1/2")
    assert len({mutations.mutant(meta, f"1/{number}") for number in range(20)}) >= 15
    assert len(mutations.mutant(meta, "1/2", without=frozenset(range(mutations.MOST)))) == len(
        mutations.mutant(meta, "1/3", without=frozenset(range(mutations.MOST)))
    )


def test_what_goes_wrong_is_told_apart() -> None:
    def verdict(**answer: object) -> str | None:
        return graphs._verdict({"code": 2, "words": "error: no", "kinds": ["LoadError"], "memory": 0} | answer)

    assert verdict() is None
    assert str(verdict(words="error: KeyError\n  fix     this should not happen: report it")).startswith("raw: ")
    assert str(verdict(kinds=["InvariantError"])).startswith("invariant: ")
    assert verdict(memory=3 << 20) == "memory: 3.0 GiB above the start"


def test_a_command_that_never_ends_is_ended() -> None:
    with graphs.Judge(seconds=0.0) as impatient:
        assert str(impatient.failure(b"", ("inspect",))).startswith("inspect: hang: no answer within 0 s")
