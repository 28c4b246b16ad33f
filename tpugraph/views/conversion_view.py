"""A view of a conversion that can be saved in several forms, and shown in a notebook."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path

from tpugraph.support import files
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted
from tpugraph.views import model_explorer, page
from tpugraph.views.view_data import ViewData

FORMATS = ("html", "model_explorer", "json")
"""The forms in which a view is written."""

_FRAME_HEIGHT = 640  # pixels


class View:
    """A view of a conversion: the graph by scopes at every stage, what each pass did, placements, verdicts.

    In a notebook it shows itself.

    Attributes:
        data: what is shown, as plain data.
    """

    def __init__(self, data: ViewData) -> None:
        self.data = data

    def save(self, path: str | os.PathLike[str], format: str = "html") -> list[Path]:
        """Write the view.

        Args:
            path: the file.
            format: ``html`` (one page that needs no server and no network), ``model_explorer`` (the graph for Google's Model
                Explorer, and beside it what its nodes are coloured by), or ``json``.

        Returns:
            The files that were written.

        Raises:
            UsageError: there is no such format.
            LoadError: the place cannot be written.
        """
        place = Path(path)
        if format == "html":
            contents = {place: self.html()}
        elif format == "model_explorer":
            contents = {place: json.dumps(model_explorer.graphs(self.data))}
            for name, data in model_explorer.node_data(self.data).items():
                contents[place.with_name(f"{place.stem}.{name}.json")] = json.dumps(data)
        elif format == "json":
            contents = {place: json.dumps(self.data.as_dict())}
        else:
            raise UsageError(f"'{format}' is no format of a view", fix=f"one of {', '.join(FORMATS)}")
        files.write_together({place: text.encode() for place, text in contents.items()})
        return list(contents)

    def html(self) -> str:
        return page.make("view", self.data.title, self.data.as_dict())

    def _repr_html_(self) -> str:
        """The page in a frame, as notebooks show it."""
        source = html.escape(self.html(), quote=True)
        return f'<iframe srcdoc="{source}" style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0"></iframe>'

    def __repr__(self) -> str:
        return (
            f"<View of {self.data.title}: {counted(len(self.data.stages), 'stage')}, {len(self.data.alive()):,} nodes>"
        )
