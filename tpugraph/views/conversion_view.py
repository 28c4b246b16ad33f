"""A view of a conversion that can be saved as a page or as JSON, and shown in a notebook."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path

from tpugraph.support import files
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted
from tpugraph.views import page
from tpugraph.views.view_data import ViewData

_FRAME_HEIGHT = 640  # pixels


class View:
    """A view of a conversion: the graph by scopes at every stage, what each pass did, placements, verdicts.

    In a notebook it shows itself.

    Attributes:
        data: what is shown, as plain data.
    """

    def __init__(self, data: ViewData) -> None:
        self.data = data

    def save(self, path: str | os.PathLike[str], format: str = "html") -> None:
        """Write the view.

        Args:
            path: the file.
            format: ``html`` (one page that needs no server and no network) or ``json``.

        Raises:
            UsageError: there is no such format.
            LoadError: the place cannot be written.
        """
        if format not in ("html", "json"):
            raise UsageError(f"'{format}' is no format of a view", fix="html or json")
        text = self.html() if format == "html" else json.dumps(self.data, default=vars)
        files.write_atomically(Path(path), text.encode())

    def html(self) -> str:
        return page.make("view", self.data.title, self.data)

    def _repr_html_(self) -> str:
        """The page in a frame, as notebooks show it."""
        source = html.escape(self.html(), quote=True)
        return f'<iframe srcdoc="{source}" style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0"></iframe>'

    def __repr__(self) -> str:
        return (
            f"<View of {self.data.title}: {counted(len(self.data.stages), 'stage')}, {len(self.data.alive()):,} nodes>"
        )
