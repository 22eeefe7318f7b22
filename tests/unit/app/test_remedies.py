"""Every event that is worth a warning says what to do, or that nothing is to be done."""

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

from streamlog.app.remedies import REMEDIES

PACKAGE = Path(__file__).parents[3] / "streamlog"
WARNING = {"warning", "error", "critical", "exception"}
TELLERS = {"telling_of", "_warn", "_tell_lost"}
"""Functions that log what they are given first."""


class Said(NamedTuple):
    """A call that logs."""

    where: str
    events: tuple[str, ...]
    has_remedy: bool


def texts(expression: ast.expr) -> tuple[str, ...]:
    """All that it can be: one text, or either of two."""
    if isinstance(expression, ast.IfExp):
        return texts(expression.body) + texts(expression.orelse)
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return (expression.value,)
    return ()


def said() -> list[Said]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            event = logged(call)
            if isinstance(call, ast.Call) and event is not None and texts(event):
                where = f"{path.relative_to(PACKAGE)}:{call.lineno}"
                found.append(Said(where, texts(event), "remedy" in ast.unparse(call)))
    return found


def logged(call: ast.AST) -> ast.expr | None:
    if not isinstance(call, ast.Call) or not call.args:
        return None
    match call.func:
        case ast.Attribute(value=ast.Name(id="logger"), attr=name) if name in WARNING:
            return call.args[0]
        case ast.Attribute(value=ast.Name(id="logger"), attr="log"):
            return call.args[1]
        case ast.Name(id=name) if name in TELLERS:
            return call.args[0]
    return None


SAID = said()


@pytest.mark.parametrize("it", SAID, ids=lambda it: it.where)
def test_it_says_what_to_do(it: Said) -> None:
    missing = [event for event in it.events if event not in REMEDIES]
    assert it.has_remedy or not missing, "add it to streamlog/app/remedies.py, or pass a remedy"


def test_most_are_found() -> None:
    assert len(SAID) > 90


def test_no_remedy_is_for_what_nobody_says() -> None:
    events = {event for it in SAID for event in it.events}
    in_code = "".join(path.read_text() for path in PACKAGE.rglob("*.py") if path.stem != "remedies")
    assert [it for it in REMEDIES if it not in events and f'"{it}"' not in in_code] == []


@pytest.mark.parametrize("remedy", sorted(set(REMEDIES.values()) - {""}))
def test_a_remedy_is_one_short_line(remedy: str) -> None:
    assert "\n" not in remedy
    assert len(remedy) < 200
