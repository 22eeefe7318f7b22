"""Which messages a search is for: by key, header, subject, text and JSON path. Pure.

A JSON path is ``$``, then ``.name``, ``["name"]``, ``[0]``, ``[-1]`` or ``[*]``, and where wanted a
comparison: ``$.a.b = 3``, ``$.tags[*] = "new"``, ``$.price >= 10``, ``$.name ~ corp`` (contains,
whatever the case). Without a comparison the path has to be there.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from streamlog.errors import InvalidRequest
from streamlog.metadata.stream.subjects import is_subset
from streamlog.record.codec import Record

TEXT_MAX: Final = 1_000
CONDITIONS_MAX: Final = 8
STEPS_MAX: Final = 32
FOUND_MAX: Final = 10_000
"""Values that one path with ``[*]`` is followed to, in one message."""

_STEP: Final = re.compile(
    r"""\.(?P<name>[^\s.\[\]=!<>~"']+)|\[(?P<index>-?\d{1,9})\]|\[(?P<all>\*)\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]"""
)
_COMPARISON: Final = re.compile(
    r"\s*(?P<operator>==|!=|<=|>=|=|<|>|~)\s*(?P<literal>.+?)\s*\Z", re.DOTALL
)

Step = str | int | None
"""A member, an element, or None for each of them."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """``of`` what was typed; ``holds`` for a decoded value."""

    steps: tuple[Step, ...]
    operator: str = ""
    literal: Any = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises InvalidRequest, in one line that says where."""
        text = text.strip()
        if not text.startswith("$"):
            raise InvalidRequest("path: begins with $, as in $.a.b = 3")
        steps: list[Step] = []
        place = 1
        while found := _STEP.match(text, place):
            place = found.end()
            if found["index"] is not None:
                steps.append(int(found["index"]))
            elif found["all"] is not None:
                steps.append(None)
            else:
                name = found["name"]
                steps.append(json.loads(found["quoted"]) if name is None else name)
        if len(steps) > STEPS_MAX:
            raise InvalidRequest(f"path: at most {STEPS_MAX} steps")
        rest = text[place:]
        if not rest.strip():
            return cls(tuple(steps))
        compared = _COMPARISON.match(rest)
        if compared is None:
            raise InvalidRequest(f"path: not understood from {rest[:40]!r} on")
        operator = compared["operator"].replace("==", "=")
        return cls(tuple(steps), operator, _literal(compared["literal"]))

    def holds(self, value: Any) -> bool:
        return any(self._compare(it) for it in self._found(value))

    def _found(self, value: Any) -> Sequence[Any]:
        found = [value]
        for step in self.steps:
            following: list[Any] = []
            for it in found:
                following.extend(_after(it, step))
                if len(following) > FOUND_MAX:
                    break
            found = following[:FOUND_MAX]
        return found

    def _compare(self, value: Any) -> bool:
        literal = self.literal
        match self.operator:
            case "":
                return True
            case "~":
                return str(literal).casefold() in _text(value).casefold()
            case "=":
                return _same(value, literal)
            case "!=":
                return not _same(value, literal)
        if _is_number(value) and _is_number(literal):
            pair = value, literal
        elif isinstance(value, str):
            pair = value, _text(literal)
        else:
            return False
        match self.operator:
            case "<":
                return bool(pair[0] < pair[1])
            case "<=":
                return bool(pair[0] <= pair[1])
            case ">":
                return bool(pair[0] > pair[1])
        return bool(pair[0] >= pair[1])


def _after(value: Any, step: Step) -> Iterator[Any]:
    if step is None:
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list):
            yield from value
    elif isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield value[step]
    elif isinstance(value, list) and -len(value) <= step < len(value):
        yield value[step]


def _literal(text: str) -> Any:
    """JSON where it is, else the text as it stands."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(value: Any, literal: Any) -> bool:
    """1 is 1.0 and not true; a text is also found without quotes, as 42 typed for "42" is."""
    if isinstance(value, bool) or isinstance(literal, bool):
        return value is literal
    return bool(value == literal) or (isinstance(value, str) and value == _text(literal))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """All of it has to hold. Empty texts ask for nothing."""

    key: str = ""
    """The key contains it."""
    subject: str = ""
    """The subject is matched by it, with NATS wildcards."""
    headers: tuple[tuple[str, str], ...] = ()
    """There is a header of that name whose value contains the text."""
    text: str = ""
    """The decoded value contains it, whatever the case."""
    paths: tuple[JsonPath, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, str], all_of: Callable[[str], Sequence[str]]) -> Self:
        """From a URL; ``all_of`` a name that may stand there several times. Raises InvalidRequest."""
        headers = []
        for it in _several(all_of, "header"):
            name, _, value = it.partition(":")
            headers.append((name.strip().casefold(), value.strip()))
        return cls(
            _limited("key", given.get("key", "")),
            _limited("subject", given.get("subject", "")),
            tuple(headers),
            _limited("text", given.get("text", "")).casefold(),
            tuple(JsonPath.of(it) for it in _several(all_of, "path")),
        )

    @property
    def is_empty(self) -> bool:
        return self == MessageFilter()

    @property
    def needs_value(self) -> bool:
        return bool(self.text or self.paths)

    def accepts_head(self, record: Record) -> bool:
        """By what need not be decoded."""
        if self.key and self.key.encode() not in bytes(record.key or b""):
            return False
        if self.subject and not is_subset(subject_of(record), self.subject):
            return False
        return all(_has_header(record, name, text) for name, text in self.headers)

    def accepts_value(self, text: str, value: Any, *, is_structured: bool) -> bool:
        """``value``: what was decoded, where ``is_structured``."""
        if self.text and self.text not in text.casefold():
            return False
        return not self.paths or (is_structured and all(it.holds(value) for it in self.paths))


def _several(all_of: Callable[[str], Sequence[str]], name: str) -> list[str]:
    given = [_limited(name, it) for it in all_of(name) if it.strip()]
    if len(given) > CONDITIONS_MAX:
        raise InvalidRequest(f"{name}: at most {CONDITIONS_MAX}")
    return given


def _limited(name: str, text: str) -> str:
    if len(text) > TEXT_MAX:
        raise InvalidRequest(f"{name}: at most {TEXT_MAX} characters")
    return text


def _has_header(record: Record, name: str, text: str) -> bool:
    return any(
        it.casefold() == name and text.encode() in bytes(value or b"")
        for it, value in record.headers
    )


def subject_of(record: Record) -> str:
    """What it was published to; empty where it was produced by Kafka's protocol."""
    for name, value in record.headers:
        if name == "subject":
            return bytes(value or b"").decode(errors="replace")
    return ""
