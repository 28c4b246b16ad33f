"""Programs of all manners train on cores as TensorFlow alone trains them on the whole batch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from programs import COINCIDENCES, PROGRAMS, Program, check, generated
from programs.known import KNOWN

LONG = ("albert", "bert", "gpt2", "xlnet")


def params(programs: list[str], cores: int) -> list[Any]:
    """The programs by name; what fails today is expected to, in the words of ``KNOWN``."""
    found = []
    for name in programs:
        words = KNOWN.get(f"{name} at {cores}")
        marks = [pytest.mark.xfail(reason=words, strict=True)] if words else []
        found.append(pytest.param(name, marks=[*marks, pytest.mark.slow] if name.startswith(LONG) else marks))
    return found


def judge(program: Program, cores: int, **options: Any) -> None:
    verdict = check(program, cores, **options)
    assert verdict.outcome in (("equal", "refused") if program.doubtful else ("equal",)), str(verdict)


@pytest.mark.parametrize("name", params(sorted(PROGRAMS), 4))
def test_cores_train_as_the_whole_batch(name: str) -> None:
    judge(PROGRAMS[name], 4)


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("name", params(sorted(PROGRAMS)[::4], 1))
def test_one_core_trains_as_the_plain_graph(name: str) -> None:
    """Every fourth program, with variables that are resources; ``tools/campaign.py --named=. --cores=1`` runs them all."""
    judge(PROGRAMS[name], 1, resource=True)


TURNS = [name for place, name in enumerate(COINCIDENCES) if place % 4 == place // 4 % 4]


@pytest.mark.parametrize("name", params(TURNS, 2))
def test_sizes_that_agree_change_nothing(name: str) -> None:
    """Each pair of sizes in one of the transformers; ``tools/campaign.py --named=:`` runs all of them."""
    judge(COINCIDENCES[name], 2)


def test_a_random_program_is_what_its_text_says() -> None:
    spec = {**generated.DEFAULT, "rows": 4, "first": "loop_max", "loss": "pairs", "open": True}
    assert generated.text(spec) == "rows=4 first=loop_max loss=pairs open=True"
    assert generated.parse(generated.text(spec)) == spec
    assert generated.parse("plain") == generated.DEFAULT


def test_a_failing_random_program_is_simplified_to_what_it_fails_for() -> None:
    source = "rows=4 first=loop_max second=dense loss=pairs clip=norm extra=sum"
    assert generated.shrunk(source, lambda text: "first=loop_max" in text) == "first=loop_max"


specs = st.fixed_dictionaries(
    {key: st.one_of(st.just(choices[0]), st.sampled_from(choices)) for key, choices in generated.FIELDS.items()}
)


@pytest.mark.xfail(reason="one row per core: sorted rows, triplets, rows one by one", strict=True)
@settings(max_examples=60, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(spec=specs, cores=st.sampled_from([2, 4]))
def test_random_programs_train_as_on_the_whole_batch(spec: dict[str, Any], cores: int) -> None:
    """``tools/campaign.py --shrink --only=SPEC`` simplifies what fails here."""
    verdict = check(generated.made(spec), cores)
    assume(verdict.outcome != "invalid")
    assert verdict.outcome == "equal", f"{verdict} | {generated.text(spec)}"
