"""One page of HTML that needs no server and no network: data, style and scripts are all within it."""

from __future__ import annotations

import base64
import gzip
import html
import json
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

_ASSETS = "assets"


def make(kind: str, title: str, data: Any) -> str:
    """The page of a kind (``view``, ``report`` or ``grid``) with its title and its data: values of JSON and dataclasses.

    The scripts and the style that the page's template names in ``{{file}}`` are put in its place; the data is compressed.
    """
    folder = resources.files("tpugraph.views") / _ASSETS
    pieces = (folder / f"{kind}.html").read_text(encoding="utf-8").split("{{")
    made = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        made += [_filled(name, folder, title, data), rest]
    return "".join(made)


def _filled(name: str, folder: Traversable, title: str, data: Any) -> str:
    if name == "title":
        return html.escape(title)
    if name == "data":
        return _packed(data)
    place = folder
    for part in name.split("/"):
        place = place / part
    return place.read_text(encoding="utf-8")


def _packed(data: Any) -> str:
    """JSON, compressed, as base64; browsers unpack it themselves. The same data gives the same text."""
    raw = json.dumps(data, separators=(",", ":"), allow_nan=False, default=vars).encode()
    return base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode()
