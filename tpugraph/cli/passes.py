"""``tpugraph passes``: the pipeline as a table."""

from __future__ import annotations

import textwrap

from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.passes import PIPELINES
from tpugraph.tpu import pipeline


def run(flags: Parsed, console: Console) -> Outcome:
    table = [step.as_data() for step in PIPELINES[flags["mode"]]]
    for number, entry in enumerate(table, 1):
        parameters = ",".join(f"{key}={value}" for key, value in entry["parameters"].items())
        console.say(f"{number:>2}  {entry['name']}" + (f"{{{parameters}}}" if parameters else ""))
        console.say(*(f"      {line}" for line in textwrap.wrap(entry["summary"], 100)))
        for label in ("requires", "ensures"):
            if entry[label]:
                console.say(f"      {label:<9}{', '.join(entry[label])}")
    own = {name: point.value for name, point in sorted(pipeline.installed().items())}
    if own:
        console.say("\nof installed packages; --passes=...,NAME,... runs them:")
    for name, place in own.items():
        console.say(f"    {name} ({place})")
    return Outcome({"passes": table, "installed": own})
