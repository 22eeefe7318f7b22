"""Which messages leave a marker, against a log that is gone through message by message."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from streamlog.ingest.admission.message_ttl import lengthened
from streamlog.partition.deletes.subject_markers import (
    AgeQueue,
    DueMessage,
    duration_text,
    ended_subjects,
    is_marker,
)
from streamlog.record.published import lifetime_s

messages = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", None]), st.booleans(), st.booleans()), max_size=30
)
"""Subject, whether it goes now, whether it is a marker itself."""


@given(messages)
def test_of_each_subject_the_last_one_counts(log: list[tuple[bytes | None, bool, bool]]) -> None:
    left = Counter(subject for subject, _, _ in log)
    expected: list[bytes] = []
    for subject, goes, is_own_marker in log:
        if goes and subject is not None:
            left[subject] -= 1
            if not left[subject] and not is_own_marker:
                expected.append(subject)
    counts = Counter(subject for subject, _, _ in log)
    due = [DueMessage(at, own) for at, (_, goes, own) in enumerate(log) if goes]
    found = ended_subjects(due, lambda at: log[at][0], lambda subject: counts[subject])
    assert found == expected


runs = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5), st.booleans()), max_size=20)


@given(runs, st.integers(0, 30), st.integers(1, 9), st.integers(0, 40))
def test_ages(added: list[tuple[int, int, bool]], now: int, limit: int, begins_at: int) -> None:
    """One that is not too old yet keeps those behind it."""
    queue, naive = AgeQueue(3), list[tuple[int, DueMessage]]()
    offset, latest = 3, 0
    for due_ms, count, marks in added:
        latest = max(latest, due_ms)
        queue.add(due_ms, offset + count, [offset] if marks else [])
        naive += [
            (latest, DueMessage(it, marks and it == offset)) for it in range(offset, offset + count)
        ]
        offset += count
    for start in (3, begins_at):
        queue.begin_at(start)
        naive = [it for it in naive if it[1].offset >= start]
        assert queue.due(now, limit) == [it for due_ms, it in naive if due_ms <= now][:limit]
        assert queue.next_ms == (naive[0][0] if naive else None)
        assert queue.last_ms == (naive[-1][0] if naive else None)


@given(st.integers(1, 10**9))
def test_a_lifetime_is_written_as_it_is_read(seconds: int) -> None:
    assert lifetime_s(duration_text(seconds).encode()) == seconds


def test_durations_as_go_writes_them() -> None:
    told = [duration_text(it) for it in (1, 59, 60, 90, 3_600, 3_661, 90_000)]
    assert told == ["1s", "59s", "1m0s", "1m30s", "1h0m0s", "1h1m1s", "25h0m0s"]


def test_what_is_a_marker() -> None:
    for header in (("Nats-Marker-Reason", b"MaxAge"), ("KV-Operation", b" PURGE")):
        assert is_marker([("subject", b"s"), header])
    others: tuple[tuple[str, bytes | None], ...] = (
        ("Nats-Marker-Reason", b""), ("KV-Operation", b"DEL"), ("KV-Operation", None),
        ("kv-operation", b"PURGE"), ("subject", b"PURGE"),
    )  # fmt: skip
    for other in others:
        assert not is_marker([other])


def test_a_lifetime_that_is_too_short() -> None:
    told = [lengthened({b"Nats-TTL": it}, 90) for it in (b"1", b"1m", b"90", b"2m", b"never", b"")]
    assert told == [b"90", b"90", None, None, None, None]
    assert lengthened({}, 90) is None
