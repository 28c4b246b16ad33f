"""Writes docs/passes.md, docs/modules.md, docs/symbols.md, docs/compat.md and docs/data_flow.svg from the
code, so that they cannot say anything else.

python tools/make_docs.py            writes them
python tools/make_docs.py --check    exit code 1 where one of them is not current

docs/collectives.md takes conversions, and docs/verdicts.md the TPU compiler: tools/collectives.py and tools/verdicts.py write them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).absolute().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import data_flow  # noqa: E402
from house import House  # noqa: E402

NOTICE = "<!-- Written by tools/make_docs.py. Change the docstrings, then run it again. -->"
PASSES_HEAD = f"""# The passes

{NOTICE}

In the order in which `tpugraph convert` runs them. The pipeline checks what a pass requires before it runs and what it
ensures after it has run; `well_formed` is checked after every pass. `tpugraph passes` prints the same list.
How to write one: [writing_a_pass.md](writing_a_pass.md).

| pass | what is true afterwards | parameters | requires | ensures |
| --- | --- | --- | --- | --- |"""
PASSES_BESIDE = """
## The pipeline of evaluation and prediction

With `--mode=eval` and `--mode=predict` these passes run:"""
MODULES_PAGE_HEAD = f"""# The modules

{NOTICE}

Every module by room, lowest room first, with what it is for. A room imports from the floors below its own.
The rules of the house: [architecture.md](architecture.md)."""
SYMBOLS_HEAD = f"""# Public symbols

{NOTICE}

## `import tpugraph`

The names that users need. Each is loaded when it is first used: `import tpugraph` alone loads no TensorFlow.

| name | is | lives in |
| --- | --- | --- |"""
MODULES_HEAD = """
## The modules that passes and programs use

Lowest room first. What only the session and the command line use is left out; the code has it."""
COMPAT_HEAD = f"""# TensorFlow 1.15's symbols

{NOTICE.replace("Change the docstrings", "Change tpugraph/compat/symbols")}

`python -m tpugraph.compat train.py --use_tpu=true` runs a program that was written for TensorFlow 1.15 as it is;
`import tpugraph.compat.v1 as tf` is the same tree for a program whose import line is changed
([running_programs.md](running_programs.md)). `tpugraph program train.py` says which of these names a program uses. The public
symbols of the modules that TensorFlow 2 dropped or Keras 3 took away, and what became of each:

- *works*: with the same arguments;
- *works with a difference*: the table says which;
- *not there*: the table says why, and what to use instead. Importing such a name is no error; using it is, and the error names
  the line.

Everything else of `tf` is that of `tensorflow.compat.v1`, which has all of it. `tf.keras` is Keras 2, from tf_keras."""
LEFT_OUT = frozenset(
    {"passes", "compat", "xla", "runtime", "estimator", "testing", "cli", "__init__.py", "__main__.py"}
)
"""Rooms whose modules are the business of tpugraph alone, except these:"""
KEPT = ("tpugraph/runtime/session.py", "tpugraph/testing/trainings.py", "tpugraph/testing/helpers.py")
EXPLAINED = frozenset({"Graph", "Node", "Tensor", "Pass", "Pipeline", "Program", "TPUSession", "Replicas", "Loop"})
"""Classes whose public methods are listed as well."""


def documents() -> dict[str, str]:
    """The generated pages, by path below the root."""
    return {"docs/passes.md": passes_page(), "docs/modules.md": modules_page(), "docs/symbols.md": symbols_page(),
            "docs/compat.md": compat_page(), "docs/data_flow.svg": data_flow_picture()}  # fmt: skip


def data_flow_picture() -> str:
    """The way of a graph through the passes of the pipeline."""
    from tpugraph.passes import PASSES

    return data_flow.picture([cls.name for cls in PASSES])


# --------------------------------------------------------------------------- TensorFlow 1.15


def compat_page() -> str:
    """What became of each symbol of the modules that TensorFlow 2 dropped or Keras 3 took away."""
    from tpugraph.compat.symbols import BASES, CONTRIB, PAGES

    whole = {path: page for path, page in PAGES.items() if path not in ("", "compat") and path not in BASES}
    lines = [COMPAT_HEAD, "", "| module | works | with a difference | not there |", "| --- | --- | --- | --- |"]
    for path, page in whole.items():
        states = [symbol.state for symbol in page.values()]
        counts = [states.count(state) for state in ("works", "works with a difference", "not there")]
        lines.append(f"| [tf.{path}](#{'tf' + path.replace('.', '')}) | {' | '.join(map(str, counts))} |")
    for path, page in whole.items():
        lines += [
            "",
            f"## tf.{path}",
            "",
            "| symbol | state | how it differs, or what to use instead |",
            "| --- | --- | --- |",
        ]
        for name, symbol in sorted(page.items(), key=lambda pair: pair[0].lower()):
            tells = f"{symbol.why}: {symbol.instead}" if symbol.why else symbol.differs
            lines.append(f"| `{name}` | {symbol.state} | {tells} |")
    lines += ["", "## Whole packages", "", "| module | comes from |", "| --- | --- |"]
    lines += [
        f"| `tf.{path}` | {' and '.join(f'`{base}`' for base in bases)} |" for path, bases in BASES.items() if path
    ]
    lines += ["", "These packages of `tf.contrib` are not there:", "", "| module | instead |", "| --- | --- |"]
    lines += [f"| `tf.contrib.{name}` | {instead} |" for name, instead in sorted(CONTRIB.items())]
    return "\n".join(lines) + "\n"


# --------------------------------------------------------------------------- passes


def passes_page() -> str:
    """The passes in the order of the pipeline, and the invariants that they require and ensure."""
    from tpugraph.compiler import passes_of
    from tpugraph.passes import PASSES, WITHOUT_TRAINING
    from tpugraph.tpu.invariants import INVARIANTS

    more = tuple(cls for cls in WITHOUT_TRAINING if cls not in PASSES)
    lines = [PASSES_HEAD, *_table(passes_of())]
    lines += [PASSES_BESIDE, ", ".join(f"[{cls.name}](#{cls.name})" for cls in WITHOUT_TRAINING) + ".", ""]
    lines += [*PASSES_HEAD.splitlines()[-2:], *_table(passes_of(more))]
    every = (*PASSES, *more)
    for row, cls in zip(passes_of(every), every, strict=True):
        source = f"{cls.__module__.replace('.', '/')}.py"
        lines += ["", f"## {row['name']}", "", *_paragraphs(cls.__doc__), f"In [`{source}`](../{source})."]
    lines += ["", "## Invariants", "", "| name | holds when |", "| --- | --- |"]
    lines += [f"| `{name}` | {_code(' '.join(invariant.meaning.split()))} |" for name, invariant in INVARIANTS.items()]
    return "\n".join(lines) + "\n"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"| [{row['name']}](#{row['name']}) | {_code(row['summary'])} | {_parameters(row['parameters'])} "
        f"| {_names(row['requires'])} | {_names(row['ensures'])} |"
        for row in rows
    ]


def _parameters(found: dict[str, Any]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in found.items() if name[0] != "_")


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _paragraphs(docstring: str | None) -> list[str]:
    parts = (" ".join(part.split()) for part in (docstring or "").split("\n\n"))
    return [line for part in parts for line in (_code(part), "")]


def _code(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


# --------------------------------------------------------------------------- modules


def modules_page() -> str:
    """Every module with the first paragraph of its docstring."""
    lines = [MODULES_PAGE_HEAD]
    house = House(ROOT)
    lines += ["", f"{house.summary()}.", "", "| floor | rooms | import |", "| --- | --- | --- |"]
    arrows = house.arrows()
    for floor, rooms in reversed(house.floors):
        lines += [
            f"| {floor} | `{room}` | {', '.join(f'`{below}`' for below in sorted(arrows[room]))} |" for room in rooms
        ]
    for _, room, paths in _rooms():
        lines += ["", f"## {room}", "", "| module | is |", "| --- | --- |"]
        for path in paths:
            shown = path.relative_to(ROOT)
            summary = _first_line(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))
            lines.append(f"| [`{shown}`](../{shown}) | {summary} |")
    return "\n".join(lines) + "\n"


def _rooms() -> Iterator[tuple[str, str, list[Path]]]:
    """The floors, the rooms on each and their modules, lowest first."""
    house = House(ROOT)
    for floor, rooms in house.floors:
        for room in rooms:
            yield floor, room, [house.paths[name] for name in house.modules(room)]


# --------------------------------------------------------------------------- symbols


def symbols_page() -> str:
    """What ``import tpugraph`` gives, then every public name of every module, with the first line of its docstring."""
    import tpugraph

    homes = {name: _home(tpugraph, name) for name in tpugraph.__all__ if not name.startswith("_")}
    lines = [SYMBOLS_HEAD]
    lines += [f"| `tpugraph.{name}` | {line} | `{module}` |" for name, (line, module) in homes.items()]
    lines.append(MODULES_HEAD)
    for path in _modules():
        lines += _module(path)
    return "\n".join(lines) + "\n"


def _home(package: Any, name: str) -> tuple[str, str]:
    found = getattr(package, name)
    module = getattr(found, "__module__", None) or found.__name__
    return _first_line(found.__doc__), module


def _modules() -> Iterator[Path]:
    """The modules whose names are listed."""
    for _, room, paths in _rooms():
        if room not in LEFT_OUT:
            yield from paths
    yield from (ROOT / name for name in KEPT)


def _module(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    rows = [row for node in tree.body for row in _rows(node)]
    lines = ["", f"### `{path.relative_to(ROOT)}`", "", _first_line(ast.get_docstring(tree))]
    return [*lines, "", "| name | is |", "| --- | --- |", *rows] if rows else lines


def _rows(node: ast.stmt) -> Iterator[str]:
    if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
        return
    yield f"| `{_signature(node)}` | {_first_line(ast.get_docstring(node))} |"
    if isinstance(node, ast.ClassDef) and node.name in EXPLAINED:
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                yield f"| `{node.name}.{_signature(member)}` | {_first_line(ast.get_docstring(member))} |"


def _signature(node: ast.ClassDef | ast.FunctionDef) -> str:
    if isinstance(node, ast.ClassDef) or any(ast.unparse(d) == "property" for d in node.decorator_list):
        return node.name
    a = node.args
    names = [arg.arg for arg in (*a.posonlyargs, *a.args) if arg.arg not in ("self", "cls")]
    if a.vararg:
        names.append(f"*{a.vararg.arg}")
    names += [f"{arg.arg}=" for arg in a.kwonlyargs]
    if a.kwarg:
        names.append(f"**{a.kwarg.arg}")
    return f"{node.name}({', '.join(names)})"


def _first_line(docstring: str | None) -> str:
    first = " ".join((docstring or "").strip().split("\n\n")[0].split())
    for role in (":func:", ":class:", ":meth:"):
        first = first.replace(role, "")
    return _code(first.replace("`~", "`"))


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them; the exit code."""
    stale = 0
    for name, text in documents().items():
        path = ROOT / name
        current = path.read_text(encoding="utf-8") if path.exists() else ""
        if current == text:
            continue
        if "--check" in arguments:
            print(f"{name} is not current: run python tools/make_docs.py")
            stale = 1
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
