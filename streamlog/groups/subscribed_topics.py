"""The topics that there are, as consumer groups see them, and those that an expression stands for.

Expressions are RE2's, as in Kafka: matching takes a time that is linear in the length of the name, whatever the
expression. That is what ``re`` cannot promise, and why RE2 is needed. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import re2

from streamlog.errors import InvalidRequest

REGEX_BYTES_MAX: Final = 1_024
_PROGRAM_BYTES_MAX: Final = 256 * 1024
"""Of what an expression is compiled to: repetitions of repetitions take more, and are refused."""


class Topic(NamedTuple):
    """A topic of today."""

    topic_id: UUID
    partitions: int


class Topics(Protocol):
    """All topics at one moment."""

    @property
    def version(self) -> int:
        """It rises with every change."""

    def find(self, name: str) -> Topic | None: ...

    def name_of(self, topic_id: UUID) -> str | None: ...

    def names(self) -> Iterable[str]:
        """May be called in any thread."""


class NoTopics:
    """Before the metadata is known."""

    version = -1

    def find(self, name: str) -> Topic | None:
        return None

    def name_of(self, topic_id: UUID) -> str | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """Those that match it as a whole. Raises InvalidRequest. For a thread: it takes time for each name."""
    options = re2.Options()
    options.max_mem = _PROGRAM_BYTES_MAX
    options.log_errors = False
    options.never_capture = True
    if len(regex.encode()) > REGEX_BYTES_MAX:
        raise InvalidRequest(f"the expression is longer than {REGEX_BYTES_MAX} bytes")
    try:
        compiled = re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidRequest(
            f"SubscribedTopicRegex is not a valid RE2 expression: {said}"
        ) from None
    return frozenset(name for name in names if compiled.fullmatch(name) is not None)


Matches = Mapping[str, frozenset[str] | str]
"""By expression: the topics that it stands for; a text: what is wrong with it."""
