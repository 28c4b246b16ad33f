"""``tpugraph convert``: a plain training graph in, a TPU graph out."""

from __future__ import annotations

import os
from pathlib import Path

from tpugraph import compiler
from tpugraph.cli import programs
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.ir import graphdef
from tpugraph.support.errors import UsageError


def run(flags: Parsed, console: Console) -> Outcome:
    output = None if flags["dry_run"] else _output(Path(flags.model), flags["output"])
    report = None if flags["report"] is None else Path(flags["report"])
    flags = programs.in_folder(flags)
    options = programs.options(flags)
    model = Path(flags.model)
    _check_places(model, output, report)
    program = compiler.convert(model, options)
    console.say(program.summary())
    program.save(output, report=report)
    written = [f"{output} ({output.stat().st_size:,} bytes)"] if output else []
    written += [str(report)] if report else []
    console.say(f"wrote {' and '.join(written)}" if written else "nothing was written: --dry_run")
    return Outcome({"output": output and str(output), "report": program.report})


def _output(model: Path, given: str | None) -> Path:
    """Where the graph goes: beside a file, or into the current folder where MODEL is a folder."""
    if given is not None:
        return Path(given)
    return Path(f"{model.resolve().name}_tpu.pb") if model.is_dir() else model.with_name(f"{model.stem}_tpu.pb")


def _check_places(model: Path, output: Path | None, report: Path | None) -> None:
    """Refuse what could not be written, or would overwrite the input, before a long conversion."""
    source = graphdef.sniff(model).path if model.is_dir() else model
    for flag, place in (("--output", output), ("--report", report)):
        if place is None:
            continue
        check_writable(place, flag)
        if place.exists() and source.exists() and place.samefile(source):
            raise UsageError(f"{flag}={place} would overwrite the input", fix="choose another name with -o OUT.pb"
                             if flag == "--output" else "choose another name for the report")  # fmt: skip
    if report and output and report.resolve() == output.resolve():
        raise UsageError(f"--report={report} would overwrite the output", fix="choose another name for the report")


def check_page(given: str, flag: str) -> Path:
    """The place of a page, which is called ``.html`` and can be written to."""
    if (place := Path(given)).suffix != ".html":
        raise UsageError(f"{flag}={place} is no page", fix=f"{flag}={place.with_suffix('.html')}")
    return check_writable(place, flag)


def check_writable(place: Path, flag: str) -> Path:
    """The place of a file, which can be written to."""
    if place.is_dir():
        raise UsageError(f"{flag}={place} is a folder", fix=f"name a file in it: {flag}={place / 'NAME'}")
    if not place.parent.is_dir():
        raise UsageError(f"the folder of {flag}={place} is not there", fix=f"mkdir -p {place.parent}")
    if not os.access(place.parent, os.W_OK):
        raise UsageError(f"the folder of {flag}={place} cannot be written to", fix="choose another place")
    return place


def check_folder(place: Path, flag: str) -> None:
    """Check that a place is a folder that can be written to, or that one can be made there."""
    there = next(path for path in (place, *place.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"{flag}={place} cannot be made: '{there}' is no folder", fix="choose another place")
    if not os.access(there, os.W_OK):
        raise UsageError(f"{flag}={place} cannot be written to", fix="choose another place")
