"""One page of HTML that needs no server and no network: data, style and scripts are all within it."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from importlib import resources
from typing import Any


def make(kind: str, title: str, data: Any) -> str:
    """The page of a kind (``view``, ``report`` or ``grid``) with its title and its data: values of JSON and dataclasses.

    The scripts and the style that the page's template names in ``{{file}}`` are put in its place; the data is compressed.
    """
    folder = resources.files("tpugraph.views") / "assets"

    def filled(name: re.Match[str]) -> str:
        if name[1] == "title":
            return html.escape(title)
        return _packed(data) if name[1] == "data" else folder.joinpath(*name[1].split("/")).read_text(encoding="utf-8")

    return re.sub(r"\{\{(.+?)\}\}", filled, (folder / f"{kind}.html").read_text(encoding="utf-8"))


def _packed(data: Any) -> str:
    """JSON, compressed, as base64; browsers unpack it themselves. The same data gives the same text."""
    raw = json.dumps(data, separators=(",", ":"), allow_nan=False, default=vars).encode()
    return base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode()
