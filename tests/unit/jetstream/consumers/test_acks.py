import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.jetstream.consumers.acks import (
    MARKS,
    PARTITIONS_MAX,
    REASON_BYTES_MAX,
    Ack,
    AckKind,
    AckSubject,
    read_ack,
    read_ack_subject,
)

_tokens = st.text(alphabet="abc09_-é%", min_size=1, max_size=5)
_numbers = st.integers(0, 2**64 - 1)
_subjects = st.builds(
    AckSubject,
    _tokens,
    _tokens,
    _numbers,
    _numbers,
    _numbers,
    st.integers(0, 2**43),
    _numbers,
    st.integers(0, PARTITIONS_MAX - 1),
    st.integers(0, MARKS - 1),
)
SUBJECT = "$JS.ACK.orders.c.1.22.2.1700000000000000307.7"


@given(_subjects)
def test_a_subject_reads_what_it_wrote(said: AckSubject) -> None:
    assert read_ack_subject(said.subject()) == said


def test_a_subject_is_as_documented() -> None:
    said = AckSubject("orders", "c", 1, 22, 2, 1_700_000_000_000, 7, 3, 7)
    assert said.subject() == SUBJECT
    assert read_ack_subject(SUBJECT) == said


@pytest.mark.parametrize(
    "subject",
    [
        "", "$JS.ACK", SUBJECT + ".8", SUBJECT.removesuffix(".7"), SUBJECT[:-1], SUBJECT[:-1] + "-7",
        SUBJECT[:-1] + "+7", SUBJECT[:-1] + " 7", SUBJECT[:-1] + "1_0", SUBJECT[:-1] + "\u00b2",
        SUBJECT[:-1] + "\u0667", SUBJECT[:-1] + "7" * 5000, SUBJECT.replace("orders", ""),
        SUBJECT.replace(".c.", ".."), SUBJECT.replace("$JS", "$js"),
    ],
)  # fmt: skip
def test_other_subjects_are_none(subject: str) -> None:
    assert read_ack_subject(subject) is None


@given(st.text(alphabet="$JS.ACKp019 *_", max_size=60) | st.text(max_size=30))
def test_no_subject_raises(subject: str) -> None:
    read_ack_subject(subject)


@given(
    st.binary(max_size=40)
    | st.builds(
        bytes.__add__,
        st.sampled_from([b"-NAK ", b'-NAK {"delay": ', b"+TERM", b"+NXT"]),
        st.binary(max_size=30) | st.from_regex(rb"[0-9.hmsun}+-]{0,30}", fullmatch=True),
    )
)
def test_no_payload_raises(payload: bytes) -> None:
    ack = read_ack(payload)
    assert ack is None or ack.delay_ms >= 0


def test_an_acknowledgement_has_its_argument() -> None:
    assert read_ack(b'-NAK {"delay": 1500000000}') == Ack(AckKind.NAK, delay_ms=1500)
    assert read_ack(b"-NAK 1ns") == Ack(AckKind.NAK, delay_ms=1)
    assert read_ack(b"+TERM  it is \xff ") == Ack(AckKind.TERM, reason="it is \ufffd")
    assert read_ack(b'+NXT {"batch": 5}') == Ack(AckKind.NEXT, next_request=b' {"batch": 5}')


def test_a_long_reason_is_cut() -> None:
    ack = read_ack(b"+TERM" + b"x" * 10_000)
    assert ack is not None
    assert ack.reason == "x" * REASON_BYTES_MAX
