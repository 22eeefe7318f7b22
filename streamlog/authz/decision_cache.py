"""Answers to "may this principal do that?", remembered for all principals of a node together."""

import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from streamlog.acl.authorizer import Authorizer
from streamlog.acl.rules import Operation, ResourceType

BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all answers, about any principal."""
ENTRY_BYTES: Final = 320
"""Of one answer, apart from the name: the key and its place in a dict."""
NAME_CHARS_MAX: Final = 4_096
"""An answer about a longer name is found again each time. Nothing that exists has such a name."""


class Question(NamedTuple):
    """``operation`` None: whether the principal may know that it is there."""

    principal: str
    host: str
    operation: Operation | None
    kind: ResourceType
    name: str


class DecisionCache:
    """A cache with two generations. When the young one has half of the bytes, the old one is
    forgotten, and the young one becomes the old one. Answers that are asked for stay.

    One limit for all principals: with a limit for each of them, one user who comes from many
    addresses would take as much memory as he likes.
    """

    def __init__(self, authorizer: Callable[[], Authorizer], *, bytes_max: int = BYTES_MAX) -> None:
        self._authorizer = authorizer
        self._known: Authorizer | None = None
        self._young: dict[Question, bool] = {}
        """By ``_known``, and no other; so is ``_old``."""
        self._old: dict[Question, bool] = {}
        self._young_bytes = 0
        self._young_bytes_max = bytes_max // 2

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def authorizer(self) -> Authorizer:
        """The rules of now. When they have changed, all answers are forgotten."""
        authorizer = self._authorizer()
        if authorizer is not self._known:
            self._known = authorizer
            self._young, self._old, self._young_bytes = {}, {}, 0
        return authorizer

    def answer(self, question: Question, find: Callable[[Authorizer], bool]) -> bool:
        """The one that is remembered, else what ``find`` says, which is remembered then."""
        authorizer = self.authorizer
        found = self._young.get(question)
        if found is not None:
            return found
        found = self._old.pop(question, None)
        if found is None:
            found = find(authorizer)
        if len(question.name) <= NAME_CHARS_MAX:
            self._keep(question, found)
        return found

    def _keep(self, question: Question, found: bool) -> None:
        self._young[question] = found
        self._young_bytes += ENTRY_BYTES + sys.getsizeof(question.name)
        if self._young_bytes > self._young_bytes_max:
            self._old, self._young, self._young_bytes = self._young, {}, 0
