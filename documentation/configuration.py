"""``docs/configuration.md``: every setting of a node, out of the models that check them."""

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from streamlog.config import ENV_DELIMITER, ENV_PREFIX, Section, Settings

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "configuration.md"
EXAMPLE: Final = ROOT / "config" / "node.toml"

HEAD: Final = """\
# Configuration

<!-- Made of streamlog/config/sections.py by `python -m documentation`; `make lint` compares. -->

A node reads one TOML file (`streamlog serve --config node.toml`). Environment variables override
single keys: `STREAMLOG_KAFKA__PORT=9093` sets `port` of the table `[kafka]`. Only `node.data_dir`
must be set. A node with an unknown key, a wrong type or contradictory settings does not start; one
line names the key and the remedy. [`config/node.toml`](../config/node.toml) has every setting with
its default. [Operations](operations.md#which-settings-must-agree) lists the settings that must
agree on all nodes of a cluster. The settings of a stream are on another page: [streams](streams.md).

Settings are read at the start of a node, so a changed file takes effect at the next start. Names
end with their unit: `_ms`, `_bytes`, `_bytes_per_s`.
"""

_ROW: Final = "| {} | {} | {} | {} |"


def page() -> str:
    """The whole page."""
    comments = _comments()
    parts = [HEAD]
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if not (isinstance(section, type) and issubclass(section, Section)):
            continue
        parts.append(f"## `[{name}]`\n\n{_first_words(section)}\n")
        parts.append("\n".join(_table(name, section, comments)) + "\n")
    return "\n".join(parts)


def _first_words(section: type[Section]) -> str:
    return _plain(inspect.getdoc(section) or "")


def _table(name: str, section: type[Section], comments: Mapping[str, str]) -> Iterator[str]:
    told = docstrings(section)
    yield _ROW.format("key", "default", "allowed", "meaning")
    yield "|---|---|---|---|"
    for key, field in section.model_fields.items():
        meaning = told.get(key) or comments.get(f"{name}.{key}", "")
        yield _ROW.format(f"`{key}`", _default(field), _allowed(field), _cell(_plain(meaning)))
    variable = f"{ENV_PREFIX}{name.upper()}{ENV_DELIMITER}<KEY>"
    yield f"\nIn the environment: `{variable}`."


def docstrings(section: type) -> dict[str, str]:
    """What stands below each field in the source."""
    (tree,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = inspect.cleandoc(str(text.value.value))
    return found


def _comments() -> dict[str, str]:
    """What ``config/node.toml`` says beside each key."""
    found: dict[str, str] = {}
    section = ""
    for line in EXAMPLE.read_text().splitlines():
        if match := re.match(r"\[(\w+)\]", line):
            section = match[1]
        elif match := re.match(r"(?:# )?(\w+) = (?:\"[^\"]*\"|[^#\"]*?)\s*#\s*(.+)", line):
            found[f"{section}.{match[1]}"] = match[2]
    return found


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "must be set"
    if value is None:
        return "not set"
    if isinstance(value, PurePath):
        value = str(value)
    text = f"{value:_}" if type(value) is int and abs(value) >= 10_000 else json.dumps(value)
    return f"`{text}`"


def _allowed(field: FieldInfo) -> str:
    """The range of numbers, the choices of words."""
    choices = _choices(field.annotation)
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    limits = {name: value for it in field.metadata for name, value in _limits(it)}
    low, high = limits.get("ge"), limits.get("le")
    if low is None:
        return "" if high is None else f"to {high:_}"
    return f"{low:_} to {high:_}" if high is not None else f"from {low:_}"


def _choices(annotation: Any) -> list[str]:
    if getattr(annotation, "__origin__", None) is None:
        return []
    return [it for it in annotation.__args__ if isinstance(it, str)]


def _limits(constraint: object) -> Iterator[tuple[str, int]]:
    for name in ("ge", "le"):
        value = getattr(constraint, name, None)
        if isinstance(value, int):
            yield name, value


def _plain(text: str) -> str:
    """As Markdown: one pair of back-ticks, one line."""
    return " ".join(text.replace("``", "`").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
