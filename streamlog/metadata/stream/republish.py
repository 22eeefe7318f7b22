"""Where a stream's messages are published again, once they are committed. Pure.

Written ``SRC -> DEST``, as a subject transform, and ``SRC -> DEST headers-only``.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from streamlog.errors import InvalidStreamConfig, InvalidSubject
from streamlog.metadata.stream.subject_transform import SubjectTransform
from streamlog.metadata.stream.subjects import check_space, check_subject

HEADERS_ONLY = " headers-only"

_MADE = re.compile(r"\{\{.*?\}\}|\$[0-9]+")


class Republish(NamedTuple):
    """``transform`` makes the subject; None for a message that is not published again."""

    transform: SubjectTransform
    headers_only: bool

    @classmethod
    def parse(cls, text: str) -> "Republish":
        """Raises InvalidSubject."""
        headers_only = text.endswith(HEADERS_ONLY)
        return cls(SubjectTransform.parse(text.removesuffix(HEADERS_ONLY)), headers_only)


def destination_of(text: str) -> str:
    """Where it goes, with a wildcard for each token that is made of the message. Raises
    InvalidSubject.
    """
    return _MADE.sub("*", Republish.parse(text).transform.destination)


def check_republish(text: str, hears: Callable[[str], bool]) -> None:
    """``hears``: whether the stream stores what comes by subjects that match a pattern. Raises
    InvalidStreamConfig, also where it would hear what it says.
    """
    try:
        pattern = destination_of(text)
        if pattern not in {"*", ">"}:
            check_subject(pattern)
            check_space(pattern)
    except InvalidSubject as error:
        raise InvalidStreamConfig(f"republish: {error}") from None
    if hears(pattern):
        raise InvalidStreamConfig("stream configuration for republish destination forms a cycle")
