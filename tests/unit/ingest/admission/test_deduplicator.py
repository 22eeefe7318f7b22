from typing import Any

import pytest

from streamlog.ingest.admission.deduplicator import Admission, Deduplicator
from streamlog.ingest.admission.publish_headers import AckPolicy, publish_headers

END = 100
NOW_MS = 1_000_000


def block(**headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def admit(
    deduplicator: Deduplicator, position: int = 0, *, now_ms: int = NOW_MS, **headers: Any
) -> Admission:
    return deduplicator.admit(
        block(**headers), b"orders", b"_INBOX.1", position, log_end_offset=END, now_ms=now_ms
    )


@pytest.fixture
def deduplicator() -> Deduplicator:
    return Deduplicator("orders", duplicate_window_ms=120_000)


def err_code(verdict: Admission) -> int | None:
    assert not verdict.store
    return verdict.refusal.err_code if verdict.refusal else None


def test_headers_are_found_and_first_wins() -> None:
    found = publish_headers(
        b"NATS/1.0\r\nNats-Msg-Id:  a b \t\r\nX-Nats-Msg-Id: no\r\nNats-Msg-Id: late\r\n"
        b"nats-msg-id: other\r\nStreamlog-Ack:none\r\nStreamlog-Key: k\r\n\r\n"
    )
    assert found == {b"Nats-Msg-Id": b"a b \t", b"Streamlog-Ack": b"none"}


@pytest.mark.parametrize(
    "text", [b"", b"NATS/1.0", b"NATS/1.0\r\nNats-Msg-Id", b"\r\nNats-", b"\xff\r\n\r\n"]
)
def test_broken_header_blocks_ask_for_nothing(deduplicator: Deduplicator, text: bytes) -> None:
    verdict = deduplicator.admit(text, b"s", b"", 0, log_end_offset=0, now_ms=NOW_MS)
    assert verdict == Admission(True)


def test_headers_that_ask_for_nothing_pass(deduplicator: Deduplicator) -> None:
    assert admit(deduplicator, Nats_Stream="x", Nats_Sequence="7", Nats_Msg_Id="") == Admission(
        True
    )


@pytest.mark.parametrize(
    "header",
    [
        "Nats_Expected_Stream", "Nats_Expected_Last_Sequence", "Nats_Expected_Last_Msg_Id",
        "Nats_Expected_Last_Subject_Sequence", "Nats_TTL", "Nats_Rollup", "Nats_Incr",
        "Nats_Schedule", "Nats_Scheduler", "Nats_Stream_Source",
    ],
)  # fmt: skip
def test_an_empty_header_asks_for_nothing(deduplicator: Deduplicator, header: str) -> None:
    assert admit(deduplicator, **{header: ""}) == Admission(True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "header", ["Nats_Batch_Sequence", "Nats_Batch_Commit", "Nats_Schedule_Target", "Nats_Unknown"]
)
def test_what_means_nothing_alone_passes(deduplicator: Deduplicator, header: str) -> None:
    assert admit(deduplicator, **{header: "1"}) == Admission(True)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["x", "1.5", "1_", "\u0661", "--1"])
def test_an_increment_that_is_no_integer_is_refused_as_such(
    deduplicator: Deduplicator, text: str
) -> None:
    assert err_code(admit(deduplicator, Nats_Incr=text)) == 10171


def test_a_repeated_id_names_the_first(deduplicator: Deduplicator) -> None:
    assert admit(deduplicator, 3, Nats_Msg_Id="a").store
    assert admit(deduplicator, 4, Nats_Msg_Id="a") == Admission(False, duplicate_of=END + 3)
    assert admit(deduplicator, 4, Nats_Msg_Id="b").store


def test_an_id_is_forgotten_after_the_window(deduplicator: Deduplicator) -> None:
    admit(deduplicator, Nats_Msg_Id="a")
    assert not admit(deduplicator, 1, Nats_Msg_Id="a", now_ms=NOW_MS + 120_000).store
    assert admit(deduplicator, 1, Nats_Msg_Id="a", now_ms=NOW_MS + 136_000).store


def test_a_shorter_window_holds_at_once(deduplicator: Deduplicator) -> None:
    admit(deduplicator, Nats_Msg_Id="a")
    deduplicator.configure(duplicate_window_ms=100)
    assert admit(deduplicator, 1, Nats_Msg_Id="a", now_ms=NOW_MS + 120_000).store


def test_an_aborted_append_forgets_its_ids_only(deduplicator: Deduplicator) -> None:
    admit(deduplicator, 0, Nats_Msg_Id="a")
    admit(deduplicator, 1, Nats_Msg_Id="b")
    deduplicator.abort(END + 1)
    assert admit(deduplicator, 1, Nats_Msg_Id="a").duplicate_of == END
    expected: dict[str, Any] = {"Nats_Expected_Last_Msg_Id": "a", "Nats_Msg_Id": "b"}
    assert admit(deduplicator, 1, **expected).store


def test_expected_last_sequence_counts_what_is_under_way(deduplicator: Deduplicator) -> None:
    assert admit(deduplicator, 5, Nats_Expected_Last_Sequence=str(END + 5)).store
    verdict = admit(deduplicator, 5, Nats_Expected_Last_Sequence=str(END))
    assert verdict.refusal is not None
    assert verdict.refusal[:3] == (400, 10071, f"wrong last sequence: {END + 5}")


def test_erasures_since_are_no_messages(deduplicator: Deduplicator) -> None:
    """Of the log's end they are; whoever expects the last message, or one of them, is right."""

    def judged(position: int, **headers: str) -> Admission:
        return deduplicator.admit(
            block(**headers), b"s", b"", position, log_end_offset=END, messages_end=END - 3,
            now_ms=NOW_MS,
        )  # fmt: skip

    for sequence in range(END - 3, END + 1):
        assert judged(0, Nats_Expected_Last_Sequence=str(sequence)).store
    for sequence in (END - 4, END + 1):
        assert err_code(judged(0, Nats_Expected_Last_Sequence=str(sequence))) == 10071
    assert err_code(judged(1, Nats_Expected_Last_Sequence=str(END))) == 10071
    deduplicator.remember(b"a", END - 4, NOW_MS)
    assert judged(0, Nats_Expected_Last_Msg_Id="a").store
    assert err_code(judged(1, Nats_Expected_Last_Msg_Id="a")) == 10070
    batch = [(b"s", {b"Nats-Expected-Last-Sequence": b"%d" % (END - 3)}), (b"s", {})]
    refused = deduplicator.admit_batch(
        batch, 0, log_end_offset=END, messages_end=END - 3, now_ms=NOW_MS
    )
    assert refused is None


@pytest.mark.parametrize("text", ["-1", "x", "1.0", "9" * 5000, "\u0661"])
def test_an_expected_sequence_that_is_none_does_not_hold(
    deduplicator: Deduplicator, text: str
) -> None:
    assert err_code(admit(deduplicator, Nats_Expected_Last_Sequence=text)) == 10071


def test_expected_last_message_id(deduplicator: Deduplicator) -> None:
    assert err_code(admit(deduplicator, Nats_Expected_Last_Msg_Id="a")) == 10070
    admit(deduplicator, 0, Nats_Msg_Id="a")
    assert admit(deduplicator, 1, Nats_Expected_Last_Msg_Id="a").store
    verdict = admit(deduplicator, 2, Nats_Expected_Last_Msg_Id="a")  # another one came in between
    assert verdict.refusal is not None
    assert verdict.refusal.description == "wrong last msg ID: "


def test_a_duplicate_is_known_before_the_last_id_is_looked_at(deduplicator: Deduplicator) -> None:
    admit(deduplicator, 0, Nats_Msg_Id="a")
    verdict = admit(deduplicator, 1, Nats_Msg_Id="a", Nats_Expected_Last_Msg_Id="z")
    assert verdict.duplicate_of == END


def test_an_expectation_is_looked_at_before_duplicates(deduplicator: Deduplicator) -> None:
    admit(deduplicator, 0, Nats_Msg_Id="a")
    assert err_code(admit(deduplicator, 1, Nats_Msg_Id="a", Nats_Expected_Stream="other")) == 10060
    assert (
        err_code(admit(deduplicator, 1, Nats_Msg_Id="a", Nats_Expected_Last_Sequence="1")) == 10071
    )


def test_a_refused_message_leaves_no_id(deduplicator: Deduplicator) -> None:
    assert err_code(admit(deduplicator, Nats_Msg_Id="a", Nats_Rollup="all")) == 10111
    assert admit(deduplicator, Nats_Msg_Id="a").store


def test_at_the_limit_of_ids_new_ones_are_refused_and_old_ones_known() -> None:
    deduplicator = Deduplicator("orders", duplicate_window_ms=120_000, ids_max=2)
    admit(deduplicator, 0, Nats_Msg_Id="a")
    admit(deduplicator, 1, Nats_Msg_Id="b")
    verdict = admit(deduplicator, 2, Nats_Msg_Id="c")
    assert verdict.refusal is not None and verdict.refusal[:2] == (429, 10167)
    assert admit(deduplicator, 2, Nats_Msg_Id="a").duplicate_of == END
    assert admit(deduplicator, 2).store
    assert admit(deduplicator, 3, Nats_Msg_Id="c", now_ms=NOW_MS + 200_000).store


@pytest.mark.parametrize(
    ("header", "code", "expected"),
    [
        ("Nats_TTL", 400, 10166),
        ("Nats_Rollup", 500, 10111),
        ("Nats_Incr", 400, 10168),
        ("Nats_Schedule", 400, 10188),
        ("Nats_Schedule_Time_Zone", 400, 10188),
        ("Nats_Schedule_Next", 400, 10212),
        ("Nats_Scheduler", 400, 10212),
        ("Nats_Expected_Last_Subject_Sequence", 503, 10163),
        ("Nats_Expected_Last_Subject_Sequence_Subject", 400, 10193),
        ("Nats_Stream_Source", 400, 10227),
    ],
)
def test_what_is_not_supported_is_refused(
    deduplicator: Deduplicator, header: str, code: int, expected: int
) -> None:
    verdict = admit(deduplicator, **{header: "1"})  # type: ignore[arg-type]
    assert err_code(verdict) == expected
    assert verdict.refusal is not None and verdict.refusal.code == code


def test_streamlog_ack(deduplicator: Deduplicator) -> None:
    assert admit(deduplicator, Streamlog_Ack="none").ack is AckPolicy.NEVER
    assert admit(deduplicator, Streamlog_Ack="leader").ack is AckPolicy.APPENDED
    assert admit(deduplicator, Streamlog_Ack="all").ack is AckPolicy.COMMITTED
    assert admit(deduplicator).ack is None
    assert err_code(admit(deduplicator, Streamlog_Ack="maybe")) == 10003


def test_of_an_id_that_the_log_holds_twice_the_last_counts(deduplicator: Deduplicator) -> None:
    deduplicator.remember(b"a", 7, NOW_MS)
    deduplicator.remember(b"b", 8, NOW_MS + 1)
    deduplicator.remember(b"a", END - 1, NOW_MS + 2)
    assert len(deduplicator) == 2
    assert admit(deduplicator, Nats_Msg_Id="a").duplicate_of == END - 1


@pytest.mark.parametrize(
    ("headers", "verdict"),
    [
        ({"": "7"}, None),
        ({"": "6"}, (400, 10071, "wrong last sequence: 7")),
        ({"": "soon"}, (400, 10071, "wrong last sequence: 7")),
        ({"": "-7"}, (400, 10071, "wrong last sequence: 7")),
        ({"": ""}, None),
        ({"": "9", "-Subject": "other.*"}, None),
        ({"": "7", "-Subject": "other.*"}, (400, 10071, "wrong last sequence: 9")),
        ({"": "0", "-Subject": "nothing"}, None),
        (
            {"-Subject": "orders"},
            (400, 10193, "missing sequence for expected last sequence per subject"),
        ),
        ({"-Subject": ""}, None),
        (
            {"": "7", "-Subject": "unknown"},
            (503, 10163, "expected last sequence per subject temporarily unavailable"),
        ),
    ],
)
def test_the_last_sequence_of_a_subject(
    deduplicator: Deduplicator, headers: dict[str, str], verdict: tuple[int, int, str] | None
) -> None:
    asked = []

    def last_on(pattern: bytes) -> int | None:
        asked.append(pattern)
        return {b"orders": 7, b"other.*": 9, b"unknown": None}.get(pattern, 0)

    names = {f"Nats-Expected-Last-Subject-Sequence{end}": text for end, text in headers.items()}
    told = deduplicator.admit(
        block(**names), b"orders", b"", 0, log_end_offset=END, now_ms=0, last_on=last_on
    )
    assert told.store == (verdict is None)
    assert (told.refusal and told.refusal[:3]) == verdict
    assert len(asked) <= 1


def test_the_subjects_sequence_is_looked_at_before_the_streams(deduplicator: Deduplicator) -> None:
    both = {"Nats-Expected-Last-Subject-Sequence": "1", "Nats-Expected-Last-Sequence": "1"}
    told = deduplicator.admit(
        block(**both), b"a", b"", 0, log_end_offset=END, now_ms=0, last_on=lambda _: 5
    )
    assert told.refusal and told.refusal.description == "wrong last sequence: 5"


def test_subjects_are_not_asked_for_where_nobody_expects_anything(
    deduplicator: Deduplicator,
) -> None:
    def last_on(_: bytes) -> int:
        raise AssertionError

    told = deduplicator.admit(
        block(Nats_Msg_Id="a"), b"a", b"", 0, log_end_offset=END, now_ms=0, last_on=last_on
    )
    assert told.store
