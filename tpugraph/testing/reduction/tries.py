"""Tries: each in a child process of a warm server, with a deadline and a bound on its memory, so that a crash is a result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tpugraph.compiler import ConvertOptions
from tpugraph.ir import Graph, graphdef
from tpugraph.support.errors import RunError

SERVER = "tpugraph.testing.reduction.try_server"


@dataclass(frozen=True)
class Question:
    """What is asked of a graph.

    Attributes:
        when: the symptom: ``differs``, ``refused:CODE``, ``crashes`` or ``xla:TEXT``.
        options: how the graph is converted.
        steps: the steps of ``differs`` and ``crashes``.
        tolerance: of ``differs``: the largest difference that is none.
        topology: of ``xla``: the TPU that is compiled for.
        checkpoint: where training starts; the graph's own first values when None.
        rebind: file names in the graph to replace.
        signature: what the symptom has to look like; "" takes any.
        difference: of ``differs`` with a signature: the size that the difference has to be like.
    """

    when: str
    options: ConvertOptions
    steps: int = 1
    tolerance: float = 1e-4
    topology: str = "v5e:2x4"
    checkpoint: str | None = None
    rebind: dict[str, str] = field(default_factory=dict)
    signature: str = ""
    difference: float = 0.0


@dataclass(frozen=True)
class Answer:
    """What came of a try.

    Attributes:
        shows: whether the graph shows the symptom.
        words: what was seen, in a sentence.
        signature: what the symptom looks like, so that others can be told from it.
        nodes: names of the nodes that it points to.
        cores: of ``differs``: the number of cores that showed it.
        difference: of ``differs``: by how much.
    """

    shows: bool
    words: str = ""
    signature: str = ""
    nodes: tuple[str, ...] = ()
    cores: int = 0
    difference: float = 0.0


class Tries:
    """Runs tries one after the other; a context manager.

    Args:
        seconds: how long one may take.
        memory: bytes that one may hold beside what the server holds.
    """

    def __init__(self, seconds: float = 120.0, memory: int = 8 << 30) -> None:
        self._bounds = {"seconds": seconds, "memory": memory}
        self._process: subprocess.Popen[str] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="tpugraph-reduce-")
        self.count = 0

    def __enter__(self) -> Tries:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server, and the try at work."""
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._process = None
        self._folder.cleanup()

    def ask(self, model: Graph | str | os.PathLike[str], question: Question) -> Answer:
        """What comes of a graph.

        Args:
            model: the graph, or its file.
            question: what is asked.

        Raises:
            RunError: the server itself cannot run.
        """
        self.count += 1
        if isinstance(model, Graph):
            path = Path(self._folder.name, "candidate.pb")
            graphdef.save(model, path)
            model = path
        server = self._process or self._start()
        assert server.stdin is not None
        assert server.stdout is not None
        request = {"model": os.fspath(model), **self._bounds, "question": asdict(question)}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        line = server.stdout.readline()
        if not line:
            self._process = None
            raise RunError(f"the server of tries has ended with code {server.wait()}", fix="is there enough memory?")
        return _answer(json.loads(line))

    def _start(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._process = subprocess.Popen([sys.executable, "-m", SERVER], env=environment, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
        return self._process


def _answer(found: dict[str, Any]) -> Answer:
    return Answer(**{**found, "nodes": tuple(found["nodes"])})
