"""What a publisher expects of the log; each check returns why it does not hold, or None. Pure.

An empty expectation is none. One that is no number never holds.
"""

from collections.abc import Callable, Collection

from streamlog.ingest.admission.publish_headers import Headers
from streamlog.ingest.admission.refusal import (
    SUBJECT_SEQUENCE_MISSING,
    SUBJECT_SEQUENCE_UNKNOWN,
    WRONG_STREAM,
    PublishRefusal,
    wrong_last_message_id,
    wrong_last_sequence,
)
from streamlog.metadata.stream.subjects import overlap

SEQUENCE_DIGITS_MAX = 20

_WRONG_LAST_SEQUENCE = PublishRefusal(400, 10164, "wrong last sequence", "expectation")

SubjectSequence = Callable[[bytes], int | None]
"""The last sequence of the subjects that match, as of the message that is judged; 0: there is none,
None: not known now."""


def unknown_sequence(_pattern: bytes) -> int | None:
    """The sequence is never known."""
    return None


def expected_stream(headers: Headers, stream: bytes) -> PublishRefusal | None:
    expected = headers.get(b"Nats-Expected-Stream")
    return WRONG_STREAM if expected and expected != stream else None


def expected_last_subject_sequence(
    headers: Headers, subject: bytes, last_on: SubjectSequence
) -> PublishRefusal | None:
    """Of the message's own subject, or of what the other header names, with wildcards too."""
    expected = headers.get(b"Nats-Expected-Last-Subject-Sequence")
    pattern = headers.get(b"Nats-Expected-Last-Subject-Sequence-Subject")
    if not expected:
        return SUBJECT_SEQUENCE_MISSING if pattern else None
    last = last_on(pattern or subject)
    if last is None:
        return SUBJECT_SEQUENCE_UNKNOWN
    return None if sequence_of(expected) == last else wrong_last_sequence(last)


def expected_last_sequence(
    headers: Headers, last_sequence: int, *, of_message: int | None = None
) -> PublishRefusal | None:
    """``last_sequence``: of the log with what is to be appended before this message.

    ``of_message``: of the last message, where erasures alone have come after it. Who expects that,
    or one of theirs, is right, too: no message has come since.
    """
    expected = headers.get(b"Nats-Expected-Last-Sequence")
    if not expected:
        return None
    first = last_sequence if of_message is None else of_message
    if first <= sequence_of(expected) <= last_sequence:
        return None
    return wrong_last_sequence(last_sequence)


def expected_at_first(headers: Headers, number: int) -> PublishRefusal | None:
    """In a batch only message 0 may say what the last sequence is."""
    return _WRONG_LAST_SEQUENCE if number and headers.get(b"Nats-Expected-Last-Sequence") else None


def expected_before_batch(
    headers: Headers, subject: bytes, written: Collection[bytes]
) -> PublishRefusal | None:
    """Nor what the last sequence is on subjects that a message of the batch before it has."""
    if not headers.get(b"Nats-Expected-Last-Subject-Sequence"):
        return None
    pattern = headers.get(b"Nats-Expected-Last-Subject-Sequence-Subject") or subject
    if pattern in written:
        return _WRONG_LAST_SEQUENCE
    if not {b"*", b">"} & set(pattern.split(b".")):
        return None
    wanted = pattern.decode(errors="replace")
    overlaps = any(overlap(wanted, other.decode(errors="replace")) for other in written)
    return _WRONG_LAST_SEQUENCE if overlaps else None


def expected_last_message_id(headers: Headers, last_id: bytes) -> PublishRefusal | None:
    """``last_id``: that of the last message; empty where it has none."""
    expected = headers.get(b"Nats-Expected-Last-Msg-Id")
    return wrong_last_message_id(last_id) if expected and expected != last_id else None


def sequence_of(text: bytes) -> int:
    """A sequence, or -1, which is none."""
    return int(text) if text.isdigit() and len(text) <= SEQUENCE_DIGITS_MAX else -1
