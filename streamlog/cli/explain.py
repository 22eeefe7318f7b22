"""What a code means, and what to do: read out of the source, where each condition is declared.

The source is read, not imported: most of it belongs to a node, and would take a second to load.
"""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

import streamlog
from streamlog import condition as vocabulary
from streamlog.cli.options.options import Json
from streamlog.cli.output import print_json, print_table, say
from streamlog.condition import Condition

PACKAGE: Final = Path(streamlog.__file__).parent
_CODE: Final = re.compile(r"(?:sl-?)?(\d{4})", re.IGNORECASE)
_TEXT: Final = r'"(?:[^"\\]|\\.)*"'
_DECLARATION: Final = re.compile(
    r"^\w+: Final = Condition\((?:.*\)$|\n(?:    .*\n)*\))", re.MULTILINE
)
_OTHER_WORDS: Final = re.compile(rf"\b(\w+)\.logged_as\(\s*({_TEXT}(?:\s*{_TEXT})*)\s*\)")


class Declared(NamedTuple):
    """A condition, and where it is declared."""

    condition: Condition
    name: str
    """Of the constant."""
    module: str
    """Its file, below the package."""
    events: tuple[str, ...]
    """What else the log calls it."""


def explain(
    what: Annotated[
        str | None,
        typer.Argument(help="A code such as SL-0101, or words of the log line; none: list all."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a code means, and what to do.

    The console, `cluster check`, `doctor`, warnings in the log and alerts have such codes. No
    node is asked. Exit code 1 if there is no such code.
    """
    found = [it for it in declared() if what is None or _is_asked(it, what)]
    if as_json:
        print_json([_plain(it) for it in found])
    elif what is None:
        rows = [(it.condition.code, it.condition.severity, it.condition.title) for it in found]
        print_table(("code", "severity", "what is wrong"), rows)
    else:
        say("\n\n".join("\n".join(_lines(it)) for it in found), end="\n" if found else "")
    if not found:
        say(
            f"streamlog: no condition is called {what!r}; `streamlog explain` lists all",
            to_stderr=True,
        )
        raise typer.Exit(1)


@cache
def declared() -> tuple[Declared, ...]:
    """All that there is, by code."""
    texts = {
        path.relative_to(PACKAGE).as_posix(): path.read_text()
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    events: dict[str, dict[str, None]] = {}
    for text in texts.values():
        for name, said in _OTHER_WORDS.findall(text) if ".logged_as(" in text else ():
            events.setdefault(name, {})[ast.literal_eval(f"({said})")] = None
    found = [
        Declared(condition, name, module, tuple(events.get(name, ())))
        for module, text in texts.items()
        if "= Condition(" in text
        for match in _DECLARATION.finditer(text)
        for name, condition in _declarations(match[0])
    ]
    return tuple(sorted(found, key=lambda it: it.condition.code))


def _declarations(text: str) -> Iterator[tuple[str, Condition]]:
    for node in ast.parse(text).body:
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name),
                value=ast.Call(func=ast.Name(id="Condition"), args=args, keywords=keywords),
            ):
                fields: dict[str, Any] = {it.arg or "": _value(it.value) for it in keywords}
                code, title, remedy = map(_value, args)
                yield name, Condition(code, title, remedy, **fields)


def _value(expression: ast.expr) -> str:
    """A declaration is made of texts, sums of them, and constants of ``streamlog.condition``."""
    match expression:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left) + _value(right)
        case ast.Name(id=name):
            return str(getattr(vocabulary, name))
    raise ValueError(f"a condition is declared by {ast.unparse(expression)}")


def _is_asked(it: Declared, what: str) -> bool:
    code = _CODE.fullmatch(what.strip())
    if code is not None:
        return it.condition.code == f"SL-{code[1]}"
    words = what.strip().lower()
    return any(words in text.lower() for text in (it.condition.title, *it.events))


def _lines(it: Declared) -> Iterator[str]:
    condition = it.condition
    yield f"{condition.code}  {condition.title} ({condition.severity})"
    yield f"  {condition.meaning}"
    yield f"  What to do: {to_do(condition)}"
    if condition.runbook:
        yield f"  Runbook: docs/{condition.runbook}"
    if it.events:
        yield f"  The log says: {', '.join(map(json.dumps, it.events))}"


def _plain(it: Declared) -> dict[str, object]:
    condition = it.condition
    return {
        "code": condition.code,
        "title": condition.title,
        "severity": condition.severity,
        "meaning": condition.meaning,
        "remedy": to_do(condition),
        "runbook": condition.runbook,
        "events": list(it.events),
    }


def to_do(condition: Condition) -> str:
    """The remedy without facts, as one can read it."""
    return condition.remedy_for({}) or "nothing: the node goes on by itself"
