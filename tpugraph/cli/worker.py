"""``tpugraph worker``: one of the processes whose cores a training on several hosts shares."""

from __future__ import annotations

import signal

from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.runtime import workers
from tpugraph.support.errors import UsageError


def run(flags: Parsed, console: Console) -> Outcome:
    if not flags["workers"]:
        raise UsageError("'tpugraph worker' needs the addresses of all workers",
                         fix="tpugraph worker --workers=10.0.0.2:8470,10.0.0.3:8470 --task=0")  # fmt: skip
    server = workers.serve(flags["workers"], flags["task"])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # the server waits outside of Python, which could not answer
    console.say(f"worker {flags['task']} of {len(flags['workers'])} serves at {flags['workers'][flags['task']]}")
    _, port = workers.host_and_port(flags["workers"][flags["task"]])
    console.note(
        f"TensorFlow's server listens on port {port} of every network of this machine, not of that address alone"
    )
    console.note("who reaches it can run anything that TensorFlow can, and read and write files, as this user; fence it so "
                "that the other workers and `tpugraph run` alone do: docs/workers.md")  # fmt: skip
    server.join()
    return Outcome({})
