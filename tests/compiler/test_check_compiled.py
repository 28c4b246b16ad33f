"""The small graphs of tests/breaking.py under the real compiler: it still says what tests/data/breaking.json holds."""

import json

import pytest
from sampling import part

from breaking import BREAKING, GOOD, RECORDED, compiled

pytestmark = pytest.mark.slow

try:
    import jax  # noqa: F401
    import libtpu  # noqa: F401
except ImportError as error:
    raise ImportError("these tests need jax and libtpu: python -m pip install -e '.[dev]'") from error


@pytest.mark.sampled
@pytest.mark.parametrize("name", part([*BREAKING, *GOOD], 2))
def test_the_real_compiler_says_what_is_recorded(name: str) -> None:
    assert compiled(name) == json.loads(RECORDED.read_text())[name]
