"""The rules of NATS subjects: what is well formed, what overlaps, what is not ours. Pure."""

from collections.abc import Iterable, Sequence
from itertools import combinations

from streamlog.errors import InvalidSubject

SUBJECT_BYTES_MAX = 1024
SUBJECTS_MAX = 1000
QUEUE_GROUP_BYTES_MAX = 249

_INBOXES = ("_INBOX.a", "_INBOX.a.a")
"""Examples of what acknowledgements are sent to."""
_API_SPACES = ("$JS.>", "$JSC.>", "$NRG.>")
_EVENTS = "$JS.EVENT.>"
_SYSTEM_SPACE = "$SYS.>"
_ACCOUNT_EVENTS = "$SYS.ACCOUNT.>"


def check_subject(subject: str) -> None:
    """Raise InvalidSubject unless ``subject`` is well formed and none of clients' inboxes."""
    check_form(subject)
    if subject.partition(".")[0] == "_INBOX":
        raise InvalidSubject(f"{subject!r}: inboxes cannot be taken")


def check_form(subject: str) -> None:
    """Raise InvalidSubject unless ``subject`` is well formed."""
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


def check_space(subject: str) -> None:
    """Raise InvalidSubject if a stream that answers must not hear ``subject``: its answers, or
    those of the API, would reach it, too. In JetStream's words.
    """
    if subject == ">":
        raise InvalidSubject("capturing all subjects requires no-ack to be true")
    if any(overlap(subject, space) for space in _API_SPACES) and not is_subset(subject, _EVENTS):
        raise InvalidSubject("subjects that overlap with jetstream api require no-ack to be true")
    if overlap(subject, _SYSTEM_SPACE) and not is_subset(subject, _ACCOUNT_EVENTS):
        raise InvalidSubject("subjects that overlap with system api require no-ack to be true")


def overlap(one: str, other: str) -> bool:
    """Is there a subject that both patterns match?"""
    ones, others = one.split("."), other.split(".")
    for a, b in zip(ones, others, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(ones) == len(others)


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
            if any(overlap(subject, inbox) for inbox in _INBOXES):
                raise InvalidSubject(f"{subject!r}: would take inboxes, too; only with no_ack")
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
