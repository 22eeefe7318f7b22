import pytest

from streamlog.errors import InvalidSubject
from streamlog.metadata.stream.subjects import (
    SUBJECT_BYTES_MAX,
    SUBJECTS_MAX,
    check_subject,
    check_subjects,
    overlap,
    partition_subject,
)


@pytest.mark.parametrize(
    "subject", ["a", "a.b.c", "a.*.c", "a.>", ">", "*", "grüße", "a.$b", "$KV.b.>"]
)
def test_well_formed(subject: str) -> None:
    check_subject(subject)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a b",
        "a\tb",
        "a\r\nb",
        "a\x00",
        "a.>.b",
        "a*",
        "a.b>",
        "a.**",
        "_INBOX.abc",
        "_INBOX.>",
        "x" * (SUBJECT_BYTES_MAX + 1),
    ],
)
def test_refused(subject: str) -> None:
    with pytest.raises(InvalidSubject):
        check_subject(subject)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "a.b", False),
        ("a.*", "a.b", True),
        ("*.b", "a.*", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("*", "a.b", False),
        ("a.*.c", "a.b.d", False),
    ],
)
def test_overlap(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is expected
    assert overlap(other, one) is expected


@pytest.mark.parametrize(
    "subject",
    [
        ">",
        "*.>",
        "*.*",
        "*.*.*",
        "$JS.>",
        "$JS.API.INFO",
        "$JS.streamlog.API.>",
        "$SYS.>",
        "$SYS.a",
    ],
)
def test_what_hears_answers_needs_a_stream_that_does_not_answer(subject: str) -> None:
    with pytest.raises(InvalidSubject, match=r"no[-_]ack"):
        check_subjects((subject,), partitions=1, answers=True)
    check_subjects((subject,), partitions=1, answers=False)


def test_events_may_be_heard() -> None:
    check_subjects(("$JS.EVENT.ADVISORY.>", "$SYS.ACCOUNT.a.>"), partitions=1, answers=True)


def test_subjects_of_one_stream_do_not_overlap() -> None:
    with pytest.raises(InvalidSubject, match="overlap"):
        check_subjects(("a.>", "a.b"), partitions=1, answers=True)


def test_subjects_of_partitions_do_not_overlap() -> None:
    check_subjects(("a", "a.1"), partitions=1, answers=True)
    with pytest.raises(InvalidSubject, match="overlap"):
        check_subjects(("a", "a.1"), partitions=2, answers=True)
    with pytest.raises(InvalidSubject, match="'>'"):
        check_subjects(("a.>",), partitions=2, answers=True)


def test_a_stream_has_subjects_and_not_too_many() -> None:
    with pytest.raises(InvalidSubject):
        check_subjects((), partitions=1, answers=True)
    with pytest.raises(InvalidSubject):
        check_subjects([f"s{i}" for i in range(SUBJECTS_MAX + 1)], partitions=1, answers=True)


def test_partition_subject() -> None:
    assert partition_subject("a.*", 0) == "a.*"
    assert partition_subject("a.*", 3) == "a.*.3"
