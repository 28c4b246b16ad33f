"""Writes the pages that the code decides: docs/passes.md and docs/compat.md, which are committed, and docs/modules.md, every
module with its public names, which is not.

python tools/make_docs.py            writes them
python tools/make_docs.py --check    exit code 1 where a committed one is not current
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).absolute().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

NOTICE = "<!-- Written by tools/make_docs.py. Change {}, then run it again. -->"
PASSES_HEAD = f"""# The passes

{NOTICE.format("the docstrings")}

In the order in which `tpugraph convert` runs them. The pipeline checks what a pass requires before it runs and what it
ensures after it has run; `well_formed` is checked after every pass. `tpugraph passes` prints the same list.
How to write one: [writing_a_pass.md](writing_a_pass.md).
"""
PASSES_BESIDE = """
## The pipeline of evaluation and prediction

With `--mode=eval` and `--mode=predict` these passes run:"""
COMPAT_HEAD = f"""# TensorFlow 1.15's symbols

{NOTICE.format("tpugraph/compat/symbols.py")}

`python -m tpugraph.compat train.py --use_tpu=true` runs a program that was written for TensorFlow 1.15 as it is;
`import tpugraph.compat.v1 as tf` is the same tree for a program whose import line is changed
([running_programs.md](running_programs.md)). `tpugraph program train.py` says which of these names a program uses. The public
symbols of the modules that TensorFlow 2 dropped or Keras 3 took away, and what became of each:

- *works*: with the same arguments;
- *works with a difference*: the table says which;
- *not there*: the table says why, and what to use instead. Importing such a name is no error; using it is, and the error names
  the line.

Everything else of `tf` is that of `tensorflow.compat.v1`, which has all of it. `tf.keras` is Keras 2, from tf_keras.
"""


def documents() -> dict[str, str]:
    """The committed pages, by path below the root."""
    return {"docs/passes.md": passes_page(), "docs/compat.md": compat_page()}


def table(head: str, rows: Iterator[str]) -> list[str]:
    """A table in Markdown; cells are separated by `` | ``."""
    return [f"| {line} |" for line in (head, " | ".join(["---"] * (head.count(" | ") + 1)), *rows)]


def code(text: str) -> str:
    """A paragraph of a docstring as a line of Markdown."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def names(found: Any) -> str:
    return ", ".join(f"`{name}`" for name in found)


# --------------------------------------------------------------------------- passes


def passes_page() -> str:
    """The passes in the order of the pipeline, and the invariants that they require and ensure."""
    from tpugraph.passes import PASSES, WITHOUT_TRAINING
    from tpugraph.tpu.invariants import INVARIANTS

    def listed(passes: Any) -> list[str]:
        return table("pass | what is true afterwards | parameters | requires | ensures", (
            f"[{row['name']}](#{row['name']}) | {code(row['summary'])} | "
            f"{names(f'{name}={value}' for name, value in row['parameters'].items() if name[0] != '_')} | "
            f"{names(row['requires'])} | {names(row['ensures'])}" for row in (step.as_data() for step in passes)))  # fmt: skip

    more = tuple(cls for cls in WITHOUT_TRAINING if cls not in PASSES)
    lines = [PASSES_HEAD, *listed(PASSES), PASSES_BESIDE]
    lines += [", ".join(f"[{cls.name}](#{cls.name})" for cls in WITHOUT_TRAINING) + ".", "", *listed(more)]
    for cls in (*PASSES, *more):
        source = f"{cls.__module__.replace('.', '/')}.py"
        lines += ["", f"## {cls.name}", ""]
        lines += [line for part in (cls.__doc__ or "").split("\n\n") for line in (code(part), "")]
        lines.append(f"In [`{source}`](../{source}).")
    rows = (f"`{name}` | {code(invariant.meaning)}" for name, invariant in INVARIANTS.items())
    return "\n".join([*lines, "", "## Invariants", "", *table("name | holds when", rows), ""])


# --------------------------------------------------------------------------- TensorFlow 1.15


def compat_page() -> str:
    """What became of each symbol of the modules that TensorFlow 2 dropped or Keras 3 took away."""
    from tpugraph.compat.symbols import BASES, CONTRIB, PAGES

    def counted(path: str) -> str:
        states = [symbol.state for symbol in PAGES[path].values()]
        counts = (str(states.count(state)) for state in ("works", "works with a difference", "not there"))
        return f"[tf.{path}](#tf{path.replace('.', '')}) | {' | '.join(counts)}"

    whole = [path for path in PAGES if path not in ("", "compat", *BASES)]
    lines = [COMPAT_HEAD, *table("module | works | with a difference | not there", map(counted, whole))]
    for path in whole:
        rows = (f"`{name}` | {symbol.state} | {f'{symbol.why}: {symbol.instead}' if symbol.why else symbol.differs}"
                for name, symbol in sorted(PAGES[path].items(), key=lambda pair: pair[0].lower()))  # fmt: skip
        lines += ["", f"## tf.{path}", "", *table("symbol | state | how it differs, or what to use instead", rows)]
    bases = (f"`tf.{path}` | {' and '.join(f'`{base}`' for base in bases)}" for path, bases in BASES.items() if path)
    lines += ["", "## Whole packages", "", *table("module | comes from", bases)]
    contrib = (f"`tf.contrib.{name}` | {instead}" for name, instead in sorted(CONTRIB.items()))
    lines += ["", "These packages of `tf.contrib` are not there:", "", *table("module | instead", contrib)]
    return "\n".join([*lines, ""])


# --------------------------------------------------------------------------- modules


def modules_page() -> str:
    """What ``import tpugraph`` gives, and every module by room, lowest first, with its public names."""
    import tpugraph
    from house import House

    def told(node: Any) -> str:
        return code((ast.get_docstring(node) or "").split("\n\n")[0])

    def public(body: list[ast.stmt], owner: str = "") -> Iterator[str]:
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name[0] != "_":
                arguments = f"({ast.unparse(node.args)})" if isinstance(node, ast.FunctionDef) else ""
                yield f"`{owner}{node.name}{arguments.replace('|', '¦')}` | {told(node)}"
                if isinstance(node, ast.ClassDef):
                    yield from public(node.body, f"{node.name}.")

    house, arrows = House(ROOT), House(ROOT).arrows()
    homes = ((name, getattr(tpugraph, name)) for name in tpugraph.__all__ if name[0] != "_")
    lines = ["# Modules and public names", "", "## `import tpugraph`", ""]
    lines += table("name | is | lives in", (
        f"`tpugraph.{name}` | {code((found.__doc__ or '').split(chr(10) * 2)[0])} | `{getattr(found, '__module__', name)}`"
        for name, found in homes))  # fmt: skip
    for floor, rooms in house.floors:
        for room in rooms:
            lines += [
                "",
                f"## {room}",
                "",
                f"On the floor `{floor}`; imports {names(sorted(arrows[room])) or 'nothing'}.",
            ]
            for path in (house.paths[name] for name in house.modules(room)):
                tree, shown = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(ROOT)
                lines += ["", f"### [`{shown}`](../{shown})", "", told(tree)]
                rows = list(public(tree.body))
                lines += ["", *table("name | is", iter(rows))] if rows else []
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> int:
    """Write the pages, or compare the committed ones; the exit code."""
    stale = [name for name, text in documents().items() if (ROOT / name).read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        print(*(f"{name} is not current: run python tools/make_docs.py" for name in stale), sep="\n", end="")
        return int(bool(stale))
    for name, text in {**documents(), "docs/modules.md": modules_page()}.items():
        (ROOT / name).write_text(text, encoding="utf-8")
    print("wrote", ", ".join([*stale, "docs/modules.md"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
