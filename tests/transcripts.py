"""Golden transcripts: commands in lines that begin with ``$``, each followed by its recorded output."""

import os
from pathlib import Path

from tpugraph.testing import UPDATE_VARIABLE


def sections(place: Path) -> list[tuple[str, str]]:
    """The questions of a file, each with its recorded answer."""
    parts = f"\n{place.read_text(encoding='utf-8')}".split("\n$ ")[1:]
    return [(asked, said) for asked, _, said in (part.partition("\n") for part in parts)]


def assert_recorded(place: Path, asked: str, found: str) -> None:
    """The answer is the recorded one; with ``TPUGRAPH_UPDATE_GOLDEN=1`` it is recorded."""
    said = dict(sections(place))[asked]
    if os.environ.get(UPDATE_VARIABLE) == "1":
        text = place.read_text(encoding="utf-8")
        place.write_text(text.replace(f"$ {asked}\n{said}", f"$ {asked}\n{found.rstrip()}\n", 1), encoding="utf-8")
    else:
        assert found.strip() == said.strip()
