"""JetStream's subject transforms: one subject out of another, by a pattern and a template. Pure.

A transform is written ``SRC -> DEST``. ``SRC`` is a pattern as of a subscription; its ``*`` are
numbered from 1. Each token of ``DEST`` is a text, ``$1`` or ``{{function(...)}}``::

    {{wildcard(1)}}                what the first * stands for; also $1
    {{partition(10, 1, 2)}}        a number below 10, by the hash of these; of the whole subject
    {{split(1, -)}}                cut into tokens at each -
    {{splitFromLeft(1, 3)}}        two tokens, the first of three letters; splitFromRight: the last
    {{sliceFromLeft(1, 3)}}        tokens of three letters; sliceFromRight: the first may be shorter
    {{left(1, 3)}} {{right(1, 3)}} only the first, or last, three letters

``random`` is not among them: a message that is sent again must become the same one.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from streamlog.errors import InvalidSubject
from streamlog.metadata.stream.subjects import SUBJECT_BYTES_MAX

ARROW: Final = " -> "
PARTITIONS_MAX: Final = 2**31 - 1

_CALL: Final = re.compile(r"\{\{\s*(\w+)\s*\((.*)\)\s*\}\}")
_SPACES: Final = re.compile(r"\s*,\s*")
_FNV_OFFSET: Final = 2166136261
_FNV_PRIME: Final = 16777619

Piece = Callable[[Sequence[str]], str]
"""What a token of the template makes of the subject's tokens."""


class SubjectTransform:
    """Call it with a subject: the new one, or None where the pattern does not match, or what it
    makes were no subject.
    """

    def __init__(self, source: str, destination: str) -> None:
        """Raises InvalidSubject. The length is limited first: taking a template apart costs more
        than linear time.
        """
        for text in (source, destination):
            if len(text) > SUBJECT_BYTES_MAX:
                raise InvalidSubject(f"{text[:40]!r}: at most {SUBJECT_BYTES_MAX} characters")
        self.source = source or ">"
        self.destination = destination
        self._pattern = self.source.split(".")
        self._rest = self._pattern[-1] == ">"
        wildcards = [at for at, token in enumerate(self._pattern) if token == "*"]
        template = _tokens(destination)
        if not destination or not all(self._pattern) or not all(template):
            raise InvalidSubject(f"{self}: an empty token")
        if ">" in self._pattern[:-1] or ">" in template[:-1] or "*" in template:
            raise InvalidSubject(f"{self}: a wildcard where none may be")
        if (template[-1] == ">") != self._rest:
            raise InvalidSubject(f"{self}: '>' must end both sides or neither")
        if self._rest:
            template.pop()
        self._pieces = [_piece(token, wildcards) for token in template]

    @classmethod
    def parse(cls, text: str) -> "SubjectTransform":
        """Of ``SRC -> DEST``. Raises InvalidSubject."""
        source, arrow, destination = text.partition(ARROW)
        if not arrow:
            raise InvalidSubject(f"{text[:60]!r}: write SRC{ARROW}DEST")
        return cls(source.strip(), destination.strip())

    def __str__(self) -> str:
        return f"{self.source}{ARROW}{self.destination}"

    def __call__(self, subject: str) -> str | None:
        tokens = subject.split(".")
        if not self._matches(tokens):
            return None
        made = [piece(tokens) for piece in self._pieces]
        if self._rest:
            made += tokens[len(self._pattern) - 1 :]
        return ".".join(made) if all(made) else None

    def _matches(self, tokens: Sequence[str]) -> bool:
        pattern = self._pattern[:-1] if self._rest else self._pattern
        fits = len(tokens) > len(pattern) if self._rest else len(tokens) == len(pattern)
        return fits and all(
            one in {"*", other} for one, other in zip(pattern, tokens, strict=False)
        )


def _tokens(template: str) -> list[str]:
    """Dots within a function are none that divide."""
    return re.findall(r"(?:\{\{.*?\}\}|[^.])+|(?<=\.)(?=\.|$)|^(?=\.|$)", template)


def _piece(token: str, wildcards: Sequence[int]) -> Piece:
    if re.fullmatch(r"\$[0-9]+", token):
        return _of_token(_place(token[1:], wildcards, token), lambda text: text)
    if not (token.startswith("{{") and token.endswith("}}")):
        if any(c.isspace() for c in token) or "{{" in token or "}}" in token:
            raise InvalidSubject(f"{token!r}: neither a text without white space nor a function")
        return lambda tokens: token
    call = _CALL.fullmatch(token)
    name = call[1].lower() if call else ""
    arguments = _SPACES.split(call[2].strip()) if call else []
    if name == "partition":
        return _partition(token, arguments, wildcards)
    if name == "wildcard" and len(arguments) == 1:
        return _of_token(_place(arguments[0], wildcards, token), lambda text: text)
    if name == "split" and len(arguments) == 2 and arguments[1] and "." not in arguments[1]:
        delimiter = arguments[1]
        at = _place(arguments[0], wildcards, token)
        return _of_token(at, lambda text: ".".join(filter(None, text.split(delimiter))))
    if name in _CUTS and len(arguments) == 2:
        cut, size = _CUTS[name], _number(arguments[1], token)
        at = _place(arguments[0], wildcards, token)
        return _of_token(at, lambda text: cut(text, size) if 0 < size < len(text) else text)
    raise InvalidSubject(f"{token!r}: no such function, or not with these arguments")


def _of_token(at: int, change: Callable[[str], str]) -> Piece:
    return lambda tokens: change(tokens[at])


def _partition(token: str, arguments: Sequence[str], wildcards: Sequence[int]) -> Piece:
    count = _number(arguments[0], token)
    if not 0 < count <= PARTITIONS_MAX:
        raise InvalidSubject(f"{token!r}: 1 to {PARTITIONS_MAX} partitions are possible")
    places = [_place(argument, wildcards, token) for argument in arguments[1:]]

    def of(tokens: Sequence[str]) -> str:
        key = "".join(tokens[at] for at in places) if places else ".".join(tokens)
        return str(_fnv(key.encode()) % count)

    return of


def _fnv(key: bytes) -> int:
    """FNV-1a, 32 bits."""
    value = _FNV_OFFSET
    for byte in key:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


def _slices_from_left(text: str, size: int) -> str:
    return ".".join(text[at : at + size] for at in range(0, len(text), size))


def _slices_from_right(text: str, size: int) -> str:
    first = len(text) % size
    whole = [text[at : at + size] for at in range(first, len(text), size)]
    return ".".join([text[:first], *whole] if first else whole)


_CUTS: Final[dict[str, Callable[[str, int], str]]] = {
    "splitfromleft": lambda text, size: f"{text[:size]}.{text[size:]}",
    "splitfromright": lambda text, size: f"{text[:-size]}.{text[-size:]}",
    "slicefromleft": _slices_from_left,
    "slicefromright": _slices_from_right,
    "left": lambda text, size: text[:size],
    "right": lambda text, size: text[-size:],
}
"""What they make of a token that is longer than the size."""


def _place(text: str, wildcards: Sequence[int], token: str) -> int:
    """Where in a subject what the wildcard of that number stands for is."""
    number = _number(text, token)
    if not 1 <= number <= len(wildcards):
        raise InvalidSubject(f"{token!r}: there is no wildcard {number}")
    return wildcards[number - 1]


def _number(text: str, token: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise InvalidSubject(f"{token!r}: {text!r} is not a number")
    return int(text)
