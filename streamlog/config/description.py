"""The settings of a node, each with its own description: out of the sections that check them. Pure.

``config/node.toml``, what ``streamlog config init`` writes, and docs/configuration.md are made of
this. The meaning of a setting is the string below it in ``node_settings``, that of a section its
docstring; type, range, choices and default are the field's own; an example is ``example(...)``
beside its type.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from streamlog.config import node_settings
from streamlog.config.node_settings import Section
from streamlog.config.settings_loader import ENV_DELIMITER, ENV_PREFIX, Settings
from streamlog.config.units import number_text, unit_of
from streamlog.config.value_type import ValueType, value_type

WIDTH: Final = 100
"""Of the comments in a file."""
GROUPED_MIN: Final = 10_000
"""Numbers are written with ``_`` from here on."""


class NodeSetting(NamedTuple):
    """A key of a section."""

    key: str
    meaning: str
    """With back-ticks around names and values."""
    type: ValueType
    default: Any
    """None: it is not set."""
    is_required: bool
    example: Any
    """None: there is none."""

    @property
    def values(self) -> str:
        """The range of numbers, in units of people; the choices of words."""
        if self.type.choices:
            return ", ".join(self.type.choices)
        if self.type.low is None or self.type.high is None:
            return ""
        low, high = (number_text(self.key, it) for it in (self.type.low, self.type.high))
        return f"{low} to {high}"

    @property
    def default_text(self) -> str:
        """As TOML, and where it has a unit also as people write it; "": it has no default."""
        if self.default is None:
            return ""
        written = toml_value(self.default)
        if unit_of(self.key) and self.default:
            human = number_text(self.key, self.default)
            return written if human == written else f"{written} ({human})"
        return written


class SectionDescription(NamedTuple):
    """A table of the file."""

    name: str
    meaning: str
    settings: tuple[NodeSetting, ...]

    @property
    def variable(self) -> str:
        """The environment variable of each of its keys."""
        return f"{ENV_PREFIX}{self.name.upper()}{ENV_DELIMITER}<KEY>"


@cache
def described_sections() -> tuple[SectionDescription, ...]:
    """All of them, in the file's order."""
    return tuple(
        SectionDescription(
            name, plain(inspect.getdoc(section) or ""), tuple(described_fields(section))
        )
        for name, field in Settings.model_fields.items()
        if isinstance(section := field.annotation, type) and issubclass(section, Section)
    )


def described_fields(section: type[Section]) -> Iterator[NodeSetting]:
    """Its own, and those of the sections that it is derived from."""
    meanings = _meanings()
    for key, field in section.model_fields.items():
        names = (it.__name__ for it in section.__mro__)
        found = (meanings[name, key] for name in names if (name, key) in meanings)
        yield _setting(key, field, next(found, ""))


def meaning(section: str, key: str) -> str:
    """Of one setting, with back-ticks."""
    (found,) = (it for it in described_sections() if it.name == section)
    return next(it.meaning for it in found.settings if it.key == key)


def annotated_file(chosen: Mapping[tuple[str, str], Any], head: str) -> str:
    """A configuration file with every setting and its description. ``chosen``: values by section
    and key; all others are commented out, at their defaults.
    """
    return head + "".join(_section_lines(section, chosen) for section in described_sections())


def toml_value(value: Any) -> str:
    """As it is written in the file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= GROUPED_MIN else str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{json.dumps(key)} = {toml_value(it)}" for key, it in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, float):
        return str(value)
    return json.dumps(str(value), ensure_ascii=False)


def plain(text: str) -> str:
    """On one line, with single back-ticks."""
    return " ".join(text.replace("``", "`").split())


def _setting(key: str, field: FieldInfo, told: str) -> NodeSetting:
    default = field.get_default(call_default_factory=True)
    if isinstance(default, PurePath):
        default = str(default)
    examples = [
        it for each in (field, *field.metadata) for it in getattr(each, "examples", None) or ()
    ]
    return NodeSetting(
        key,
        told,
        value_type(field),
        None if default is PydanticUndefined else default,
        field.is_required(),
        examples[0] if examples else None,
    )


@cache
def _meanings() -> dict[tuple[str, str], str]:
    """What stands below each field in the source, by class and field."""
    found: dict[tuple[str, str], str] = {}
    try:
        source = inspect.getsource(node_settings)
    except OSError:  # installed without sources: a node need not say what its settings mean
        return found
    for section in ast.parse(source).body:
        if isinstance(section, ast.ClassDef):
            for field, text in zip(section.body, section.body[1:], strict=False):
                match field, text:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(said))),
                    ):
                        found[section.name, name] = plain(said)
    return found


def _section_lines(section: SectionDescription, chosen: Mapping[tuple[str, str], Any]) -> str:
    lines = ["", *_comment(section.meaning), f"[{section.name}]"]
    for setting in section.settings:
        value = chosen.get((section.name, setting.key))
        lines += ["", *_comment(setting.meaning), *_comment(" ".join(_facts(setting)))]
        if value is not None:
            lines.append(f"{setting.key} = {toml_value(value)}")
        else:
            shown = setting.example if setting.default is None else setting.default
            lines.append(f"#{setting.key} = {toml_value(shown)}")
    return "\n".join([*lines, ""])


def _facts(setting: NodeSetting) -> Iterator[str]:
    if setting.values:
        yield f"Values: {setting.values}."
    if setting.is_required:
        yield "Required."
    elif setting.default is None:
        yield "Not set; an example:"
    elif "(" in setting.default_text and unit_of(setting.key):
        yield f"Default: {number_text(setting.key, setting.default)}."
    if setting.default is not None and setting.example is not None:
        yield f"Example: {toml_value(setting.example)}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="# ", subsequent_indent="# ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
