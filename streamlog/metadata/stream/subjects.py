"""The rules of NATS subjects: what is well formed, what overlaps, what is not ours. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from streamlog.errors import InvalidSubject

SUBJECT_BYTES_MAX = 1024
SUBJECTS_MAX = 1000
QUEUE_GROUP_BYTES_MAX = 249
OVERLAP_STEPS_MAX: Final = 200_000
"""Tokens that one comparison of subjects may look at, about 0.1 s. A thousand subjects without
wildcards need a few thousand; only wildcards that meet thousands of other tokens need more.
"""

_INBOXES = ("_INBOX.a", "_INBOX.a.a")
"""Examples of what acknowledgements are sent to."""
_API_SPACES = ("$JS.>", "$JSC.>", "$NRG.>")
_EVENTS = "$JS.EVENT.>"
_UNPRINTED: Final = re.compile(r"[\s\x00-\x1f\x7f]")
_SYSTEM_SPACE = "$SYS.>"
_ACCOUNT_EVENTS = "$SYS.ACCOUNT.>"
_GUARDED_FIRST: Final = frozenset({"*", ">", "$JS", "$JSC", "$NRG", "$SYS"})
"""First tokens of what may overlap with one of these spaces."""


def check_subject(subject: str) -> None:
    """Raise InvalidSubject unless ``subject`` is well formed and none of clients' inboxes."""
    check_form(subject)
    if subject.partition(".")[0] == "_INBOX":
        raise InvalidSubject(f"{subject!r}: inboxes cannot be taken")


def check_form(subject: str) -> None:
    """Raise InvalidSubject unless ``subject`` is well formed."""
    if not subject or len(subject.encode()) > SUBJECT_BYTES_MAX:
        raise InvalidSubject(f"{subject[:40]!r}: 1 to {SUBJECT_BYTES_MAX} bytes are allowed")
    if _UNPRINTED.search(subject):
        raise InvalidSubject(f"{subject!r}: white space and control characters are not allowed")
    tokens = subject.split(".")
    for i, token in enumerate(tokens):
        if not token:
            raise InvalidSubject(f"{subject!r}: an empty token")
        if token == ">" and i < len(tokens) - 1:
            raise InvalidSubject(f"{subject!r}: '>' may only be the last token")
        if len(token) > 1 and ("*" in token or ">" in token):
            raise InvalidSubject(f"{subject!r}: a wildcard must be a whole token")


def check_space(subject: str) -> None:
    """Raise InvalidSubject if a stream that answers must not hear ``subject``: its answers, or
    those of the API, would reach it, too. In JetStream's words.
    """
    if subject.partition(".")[0] not in _GUARDED_FIRST:
        return
    if subject == ">":
        raise InvalidSubject("capturing all subjects requires no-ack to be true")
    if any(overlap(subject, space) for space in _API_SPACES) and not is_subset(subject, _EVENTS):
        raise InvalidSubject("subjects that overlap with jetstream api require no-ack to be true")
    if overlap(subject, _SYSTEM_SPACE) and not is_subset(subject, _ACCOUNT_EVENTS):
        raise InvalidSubject("subjects that overlap with system api require no-ack to be true")


def takes_inboxes(subject: str) -> bool:
    """Does it match what clients hear answers by?"""
    may_be = subject.partition(".")[0] in {"*", ">", "_INBOX"}
    return may_be and any(overlap(subject, inbox) for inbox in _INBOXES)


def overlap(one: str, other: str) -> bool:
    """Is there a subject that both patterns match?"""
    ones, others = one.split("."), other.split(".")
    for a, b in zip(ones, others, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(ones) == len(others)


class SubjectTree:
    """Patterns by their tokens, to find one that overlaps with another.

    Comparing all pairs of n patterns takes n² steps, and the patterns come from clients before
    anything is known about their rights. A walk down the tree takes as many steps as the pattern
    has tokens; a wildcard branches. The steps of all walks together are limited.
    """

    def __init__(self) -> None:
        self._root = _PatternBranch()
        self._steps = 0

    def add(self, pattern: str, number: int) -> None:
        """``number`` is what ``overlapping`` answers with. Add them in descending order."""
        branch = self._root
        for token in pattern.split("."):
            branch = branch.children.setdefault(token, _PatternBranch())
            branch.least = number
        branch.end = number

    def overlapping(self, pattern: str) -> int | None:
        """The least number of the patterns that ``overlap`` with this one.

        Raises InvalidSubject where finding it takes too many steps.
        """
        tokens, found = pattern.split("."), list[int]()
        branches = [self._root]
        for token in tokens:
            self._spend(len(branches))
            found += [it.children[">"].least for it in branches if ">" in it.children]
            if token == ">":
                self._spend(sum(len(it.children) for it in branches))
                found += [child.least for it in branches for child in it.children.values()]
                branches = []
            elif token == "*":
                self._spend(sum(len(it.children) for it in branches))
                branches = [child for it in branches for child in it.children.values()]
            else:
                branches = [
                    it.children[key] for it in branches for key in {token, "*"} & it.children.keys()
                ]
        found += [it.end for it in branches if it.end is not None]
        return min(found, default=None)

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > OVERLAP_STEPS_MAX:
            raise InvalidSubject("too many wildcards to compare the subjects with each other")


class _PatternBranch:
    """All patterns that begin with the same tokens."""

    __slots__ = ("children", "end", "least")

    def __init__(self) -> None:
        self.children: dict[str, _PatternBranch] = {}
        self.least = 0
        """The least number of a pattern that goes through here."""
        self.end: int | None = None
        """The least number of a pattern that ends here."""


def is_subset(one: str, other: str) -> bool:
    """Does ``other`` match every subject that ``one`` matches?"""
    ones, others = one.split("."), other.split(".")
    for i, wanted in enumerate(others):
        if wanted == ">":
            return len(ones) > i
        if i >= len(ones) or ones[i] == ">" or (wanted != "*" and ones[i] != wanted):
            return False
    return len(ones) == len(others)


def partition_subject(subject: str, partition: int) -> str:
    """What partition ``partition`` listens on: the subject itself, or ``subject.i``."""
    return subject if partition == 0 else f"{subject}.{partition}"


def hears(subjects: Sequence[str], pattern: str, *, partitions: int) -> bool:
    """Whether some partition of these subjects hears what ``pattern`` matches. Costs the subjects,
    however many partitions there are.
    """
    if any(overlap(subject, pattern) for subject in subjects):
        return True
    last = pattern.rpartition(".")[2]
    if last not in {"*", ">"} and not _is_number_below(last, partitions):
        return False
    return partitions > 1 and any(overlap(f"{subject}.*", pattern) for subject in subjects)


def _is_number_below(token: str, partitions: int) -> bool:
    """Of a partition but the first, as it stands at the end of its subjects."""
    if len(token) > 5 or not (token.isascii() and token.isdigit()):
        return False
    return 0 < int(token) < partitions and str(int(token)) == token


def check_queue_group(name: str) -> None:
    """Raise InvalidSubject unless it can be the name of a NATS queue group."""
    if len(name.encode()) > QUEUE_GROUP_BYTES_MAX:
        raise InvalidSubject(f"group: at most {QUEUE_GROUP_BYTES_MAX} bytes")
    tokens = name.split(".")
    if any(c.isspace() or ord(c) < 32 or ord(c) == 127 for c in name) or not all(tokens):
        raise InvalidSubject(f"group: {name!r}: no white space, control characters, empty tokens")
    if any("*" in token or ">" in token for token in tokens):
        raise InvalidSubject(f"group: {name!r}: wildcards are not allowed")


def check_subjects(subjects: Sequence[str], *, partitions: int, answers: bool) -> None:
    """A stream's subjects together: no message may reach it twice, and no loop may arise."""
    if not 1 <= len(subjects) <= SUBJECTS_MAX:
        raise InvalidSubject(f"subjects: 1 to {SUBJECTS_MAX} are allowed, not {len(subjects)}")
    for subject in subjects:
        check_subject(subject)
        if partitions > 1 and subject.endswith(">"):
            raise InvalidSubject(f"{subject!r}: more than one partition needs subjects without '>'")
        if answers:
            check_space(subject)
            if takes_inboxes(subject):
                raise InvalidSubject(f"{subject!r}: would take inboxes, too; only with no_ack")
    patterns = list(subjects)
    if partitions > 1:  # ``subject.*`` stands for those of the other partitions
        patterns += [f"{subject}.*" for subject in subjects]
    tree = SubjectTree()
    for number in range(len(patterns) - 1, -1, -1):
        other = tree.overlapping(patterns[number])
        if other is not None:
            raise InvalidSubject(
                f"{patterns[number]!r} and {patterns[other]!r} of one stream overlap"
            )
        tree.add(patterns[number], number)
