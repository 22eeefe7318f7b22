"""Names of the code in the documentation: a table's cell with a file, and the next with names in it.

    | `log/log.py` | `PartitionLog.append`, `PartitionLog.read` |

Paths are below ``streamlog/``. Python is parsed; Cython is searched.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = Path(__file__).parents[1] / "streamlog"

_FILE: Final = re.compile(r"`([\w/]+\.(?:py|pyx|pxi))`")
_NAME: Final = re.compile(r"`([A-Za-z_][\w.]*)`")
_CYTHON_CLASS: Final = re.compile(r"^cdef class (\w+)")
_CYTHON_FUNCTION: Final = re.compile(r"^(\s*)(?:def|cdef|cpdef)\b[^(=]*?(\w+)\(")


class CodeName(NamedTuple):
    """``path`` is relative to the package; ``name`` is ``function``, ``Class`` or ``Class.member``."""

    path: str
    name: str


def code_names(markdown: str) -> Iterator[CodeName]:
    """The names in the tables of a page, row by row."""
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        for cell, names in pairwise(cells):
            if file := _FILE.fullmatch(cell):
                yield from (CodeName(file[1], name) for name in _NAME.findall(names))


def problem(named: CodeName) -> str:
    """What is wrong with it; empty if nothing is."""
    path = PACKAGE / named.path
    if not path.exists():
        return f"streamlog/{named.path} does not exist"
    if named.name not in _defined(path):
        return f"streamlog/{named.path} has no {named.name}"
    return ""


@cache
def _defined(path: Path) -> frozenset[str]:
    text = path.read_text()
    return frozenset(_in_cython(text) if path.suffix != ".py" else _in_python(ast.parse(text)))


def _in_python(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        yield from _bound(node)
        if isinstance(node, ast.ClassDef):
            members = {name for member in node.body for name in _bound(member)}
            members |= {
                target.attr
                for target in ast.walk(node)
                if isinstance(target, ast.Attribute)
                and isinstance(target.ctx, ast.Store)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            }
            yield from (f"{node.name}.{member}" for member in members)


def _bound(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _in_cython(text: str) -> Iterator[str]:
    """Functions, classes and their methods; attributes are in the ``.pxd`` file."""
    owner = ""
    for line in text.splitlines():
        if begun := _CYTHON_CLASS.match(line):
            owner = begun[1]
            yield owner
        elif function := _CYTHON_FUNCTION.match(line):
            if not function[1]:
                owner = ""
            yield f"{owner}.{function[2]}" if owner else function[2]
