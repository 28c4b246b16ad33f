"""The names of TensorFlow 1.15 in the text of a program, found without running it."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from dataclasses import dataclass
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from tpugraph.compat.import_hook import ROOTS, module_path
from tpugraph.compat.tree import Inside, MissingModuleError, MissingSymbolError, Namespace, namespace, symbol_of
from tpugraph.support.errors import LoadError


@dataclass(frozen=True)
class Use:
    """A name that a program uses."""

    name: str  # the name, from tf on
    where: str  # the file and line of the first use
    state: str  # what became of it: works, works with a difference or not there
    tells: str = ""  # how it differs, or what to use instead


def uses_in(path: Path) -> list[Use]:
    """The names of TensorFlow 1.15 that a Python file uses, in the order of its lines."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise not_python_3(str(path), error) from None
    aliases = dict(_aliases(tree))
    found = []
    for node in ast.walk(tree):
        chain = _chain(node, aliases)
        if chain is not None:
            found.append(_use(chain, f"{path}:{getattr(node, 'lineno', 0)}"))
    unique = {use.name: use for use in reversed(found) if use is not None}
    return sorted(unique.values(), key=lambda use: int(use.where.rpartition(":")[2]))


def program_files(path: Path) -> list[Path]:
    """The files of a program: what its own imports reach from a file that lies beside it, or in the packages around it."""
    whole = path.resolve()
    top = whole.parent
    while (top / "__init__.py").exists():
        top = top.parent
    finder = ModuleFinder([str(whole.parent), str(top)])  # and nowhere else: libraries are left out
    try:
        if top == whole.parent:
            finder.run_script(str(path))
        else:  # as a module of its package, which it imports relative to itself
            finder.import_hook(".".join(whole.relative_to(top).with_suffix("").parts))
    except (SyntaxError, ValueError) as error:
        raise not_python_3(getattr(error, "filename", None) or str(path), error) from None
    files = [Path(module.__file__) for module in finder.modules.values() if module.__file__]  # type: ignore[attr-defined]
    return list({file.resolve(): file for file in (*files, path)}.values())


def not_python_3(file: str, error: Exception) -> LoadError:
    """The error to show for a file whose text Python cannot read."""
    line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
    return LoadError(f"'{file}' is no Python 3: {getattr(error, 'msg', error)}", origin=f"{file}{line}",
                     fix="translate a Python 2 program first, for instance with 2to3 -w of Python 3.12 or older")  # fmt: skip


def _aliases(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """What a name of the program stands for: the parts of a name in the tree; ``[]`` is ``tf`` itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root, _, rest = alias.name.partition(".")
                if root in ROOTS:
                    yield (alias.asname, _parts(root, rest)) if alias.asname else (root, _parts(root, ""))
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] in ROOTS:
            root, _, rest = (node.module or "").partition(".")
            inside = ["python"] if "python" in rest.split(".") and module_path(root, rest) else []
            for alias in node.names:
                yield alias.asname or alias.name, [*_parts(root, rest), *inside, alias.name]


def _parts(root: str, rest: str) -> list[str]:
    path = module_path(root, rest)
    if path == "":
        return []
    return (rest if path is None else path).split(".")


def _chain(node: ast.AST, aliases: dict[str, list[str]]) -> list[str] | None:
    """The parts of the name that an expression such as ``tf.train.AdamOptimizer`` spells; None for anything else."""
    if not isinstance(node, ast.Attribute | ast.Name) or not isinstance(node.ctx, ast.Load):
        return None
    root, *names = ast.unparse(node).split(".")
    return [*aliases[root], *names] if root in aliases and all(map(str.isidentifier, names)) else None


def _use(parts: list[str], where: str) -> Use | None:
    """What became of a name; None for ``tf`` itself and for modules."""
    at: Any = namespace("")
    path: list[str] = []
    for part in parts:
        if not isinstance(at, types.ModuleType):
            break
        path.append(part)
        name = "tf." + ".".join(path)
        symbol = symbol_of(at._path, part) if isinstance(at, Namespace) else None
        if symbol is not None and (symbol.differs or not symbol.home):
            return Use(name, where, symbol.state, symbol.differs or f"{symbol.why}: {symbol.instead}")
        try:
            at = getattr(at, part)
        except (MissingSymbolError, MissingModuleError) as error:
            return Use(name, where, "not there", error.fix or error.fault)
        except AttributeError:
            if at.__name__.startswith("tensorflow.python"):
                return None  # a module below TensorFlow's own that nothing has imported yet
            return Use(name, where, "not there", "docs/compat.md lists what there is")
        if isinstance(at, Inside):
            path.pop()  # a file of the module, whose names are the module's
    return None if isinstance(at, types.ModuleType) else Use("tf." + ".".join(path), where, "works")
