"""The server of tries: imports what a try needs once, then makes a child for each. Run by :mod:`.tries` with ``python -m``.

A line of JSON comes in for each try, a line goes out. The server ends when its input does.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from tpugraph.compiler import ConvertOptions
from tpugraph.support.garbage import without_garbage_collection
from tpugraph.testing.reduction import symptoms
from tpugraph.testing.reduction.tries import Answer, Question

_LOOK_EVERY = 0.05  # seconds between two looks at the memory of a try
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LATE = "there was no end in time"
_STILL = "it waited without an end"
_PATIENCE = 10.0  # seconds without any processor time after which a try waits for what will not come


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer until the requests end."""
    symptoms.warm_up()
    for line in requests:
        request = json.loads(line)
        answer = attempt(request["model"], question_of(request["question"]), request["seconds"], request["memory"])
        answers.write(json.dumps(asdict(answer)) + "\n")
        answers.flush()


def question_of(fields: dict[str, Any]) -> Question:
    """A question as JSON, as an object again."""
    options: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in fields["options"].items()
    }
    return Question(**{**fields, "options": ConvertOptions(**options)})


def attempt(model: str, question: Question, seconds: float, memory: int) -> Answer:
    """One try in a child; what ends the child is an answer too.

    A child of a process that has threads may wait for a lock that one of them held when it was made. So a child that does
    nothing for long is ended, and has a second one, which is given all the time.
    """
    answer, still = _attempt(model, question, seconds, memory, min(_PATIENCE, seconds))
    return _attempt(model, question, seconds, memory, seconds)[0] if still else answer


def _attempt(model: str, question: Question, seconds: float, memory: int, patience: float) -> tuple[Answer, bool]:
    """The answer, and whether the child was ended because it did nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run_child(model, question, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text, why = _read(pipe.fileno(), child, time.monotonic() + seconds, memory, patience)
    _, status = os.waitpid(child, 0)
    if text and not why:
        found = json.loads(text)
        return Answer(**{**found, "nodes": tuple(found["nodes"])}), False
    died = f"the process died of signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "the process ended"
    return symptoms.of_death(question, why or died), why == _STILL


def _read(pipe: int, child: int, deadline: float, memory: int, patience: float) -> tuple[bytes, str]:
    """What the child writes, and why it was ended, or ""."""
    found, before = b"", _resident(os.getpid())
    worked, since = 0, time.monotonic()
    while True:
        ready, _, _ = select.select([pipe], [], [], _LOOK_EVERY)
        if ready:
            more = os.read(pipe, 1 << 16)
            if not more:
                return found, ""
            found += more
        now, ticks = time.monotonic(), _processor_ticks(child)
        if ticks != worked:
            worked, since = ticks, now
        if why := _why_to_end(now - since >= patience, now > deadline, _resident(child) - before > memory):
            os.kill(child, signal.SIGKILL)
            return found, why


def _why_to_end(still: bool, late: bool, large: bool) -> str:
    return _STILL if still else _LATE if late else "it took too much memory" if large else ""


def _processor_ticks(process: int) -> int:
    """The processor time that a process and its threads have used, in ticks of the system's clock; 0 for one that has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])  # utime and stime, by proc(5)


def _resident(process: int) -> int:
    """The bytes of memory that a process holds; 0 for one that has ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _run_child(model: str, question: Question, writer: int) -> None:
    """Try, write the answer and end, without what Python does at its end: threads of TensorFlow may hang there."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        with without_garbage_collection():
            answer = symptoms.look(model, question)
        os.write(writer, json.dumps(asdict(answer)).encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
