"""The rules of NATS subjects: what is well formed, what overlaps, what is not ours. Pure."""

from collections.abc import Iterable, Sequence
from itertools import combinations

from streamlog.errors import InvalidSubject

SUBJECT_BYTES_MAX = 1024
SUBJECTS_MAX = 1000

_NOT_OURS = ("_INBOX.a", "_INBOX.a.a", "$JS.API.INFO", "$JS.a.API.STREAM.CREATE.a", "$SYS.a.a")
"""Examples of what a stream that answers must not hear: replies, management requests."""


def check_subject(subject: str) -> None:
    """Raise InvalidSubject unless ``subject`` is well formed and not the system's."""
    if not subject or len(subject.encode()) > SUBJECT_BYTES_MAX:
        raise InvalidSubject(f"{subject[:40]!r}: 1 to {SUBJECT_BYTES_MAX} bytes are allowed")
    if any(c.isspace() or ord(c) < 32 or ord(c) == 127 for c in subject):
        raise InvalidSubject(f"{subject!r}: white space and control characters are not allowed")
    tokens = subject.split(".")
    for i, token in enumerate(tokens):
        if not token:
            raise InvalidSubject(f"{subject!r}: an empty token")
        if token == ">" and i < len(tokens) - 1:
            raise InvalidSubject(f"{subject!r}: '>' may only be the last token")
        if len(token) > 1 and ("*" in token or ">" in token):
            raise InvalidSubject(f"{subject!r}: a wildcard must be a whole token")
    if tokens[0].startswith("$") or tokens[0] == "_INBOX":
        raise InvalidSubject(f"{subject!r}: subjects of the system and inboxes cannot be taken")


def overlap(one: str, other: str) -> bool:
    """Is there a subject that both patterns match?"""
    ones, others = one.split("."), other.split(".")
    for a, b in zip(ones, others, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(ones) == len(others)


def partition_subject(subject: str, partition: int) -> str:
    """What partition ``partition`` listens on: the subject itself, or ``subject.i``."""
    return subject if partition == 0 else f"{subject}.{partition}"


def check_subjects(subjects: Sequence[str], *, partitions: int, answers: bool) -> None:
    """A stream's subjects together: no message may reach it twice, and no loop may arise."""
    if not 1 <= len(subjects) <= SUBJECTS_MAX:
        raise InvalidSubject(f"subjects: 1 to {SUBJECTS_MAX} are allowed, not {len(subjects)}")
    for subject in subjects:
        check_subject(subject)
        if partitions > 1 and subject.endswith(">"):
            raise InvalidSubject(f"{subject!r}: more than one partition needs subjects without '>'")
        if answers and any(overlap(subject, taken) for taken in _NOT_OURS):
            raise InvalidSubject(
                f"{subject!r}: would take inboxes and management requests too; only with no_ack"
            )
    for one, other in _pairs(subjects, partitions):
        if overlap(one, other):
            raise InvalidSubject(f"{one!r} and {other!r} of one stream overlap")


def _pairs(subjects: Sequence[str], partitions: int) -> Iterable[tuple[str, str]]:
    """Pairs that must not overlap; ``subject.*`` stands for those of the other partitions."""
    yield from combinations(subjects, 2)
    if partitions > 1:
        for one in subjects:
            yield from ((f"{one}.*", other) for other in subjects)
            yield from ((f"{one}.*", f"{other}.*") for other in subjects if other < one)
