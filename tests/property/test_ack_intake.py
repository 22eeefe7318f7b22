"""Acknowledgements that are gathered are those that are read one by one, in the same order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.jetstream.consumers.ack_intake import AckIntake, AckRun
from streamlog.jetstream.consumers.acks import Ack, AckKind, AckSubject, read_ack, read_ack_subject
from streamlog.nats.router import Router, Subscription

subjects = st.builds(
    AckSubject,
    stream=st.just("s"),
    consumer=st.sampled_from(["c", "d", "ç"]),
    count=st.integers(1, 3),
    stream_sequence=st.integers(0, 4),
    consumer_sequence=st.integers(1, 9),
    timestamp_ms=st.sampled_from([0, 1_764_360_000_000]),
    pending=st.integers(0, 3),
    partition=st.integers(0, 1),
    mark=st.integers(7, 8),
).map(AckSubject.subject)
odd_subjects = st.sampled_from([
    "$JS.ACK.s.c", "$JS.ACK.s.c.1.2.3.4", "$JS.ACK.s.c.1.2.3.4.5.6", "$JS.ACK.s.c.1.-2.3.4.5",
    "$JS.ACK.s.c.1.2x.3.4.5", "$JS.ACK.s.c.1.99999999999999999999.3.4.5",
    "$JS.ACK.s.c.1.9223372036854775808.3.4.5", "$JS.ACK.s.c.1.9223372036854775807.3.4.5",
])  # fmt: skip
payloads = st.sampled_from([b"", b"", b"+ACK", b"+OK", b"-NAK", b"+WPI", b"+ACK ", b"+AC", b"?"])
replies = st.sampled_from([b"", b"", b"", b"inbox"])
Seen = tuple[str, str, int, int, int] | tuple[bytes, bytes, bytes]


class Taken:
    """In order: positive acknowledgements one by one, and whatever else was told."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.runs = 0

    def gathered(self, stream: str, consumer: str, runs: list[AckRun]) -> None:
        self.runs += len(runs)
        for it in runs:
            assert it.start < it.stop
            self.seen += (
                (stream, consumer, it.partition, it.mark, offset)
                for offset in range(it.start, it.stop)
            )

    def told(self, subject: bytes, reply: bytes, _: bytes, payload: bytes) -> None:
        self.seen.append((subject, reply, payload))


def fail(error: Exception) -> None:
    raise error


@given(
    st.lists(
        st.tuples(subjects | subjects | odd_subjects, replies, payloads) | st.none(), max_size=30
    )
)
@settings(max_examples=500, deadline=None)
def test_what_is_gathered_is_what_came(said: list[tuple[str, bytes, bytes] | None]) -> None:
    """None: the turn ends."""
    router, taken = Router(), Taken()
    intake = AckIntake(router, gathered=taken.gathered, told=taken.told, failed=fail)
    router.add(Subscription(intake, b"$JS.ACK.s.>"))
    router.begin_turn()
    expected: dict[str, list[Seen]] = {}
    for each in said:
        if each is None:
            router.end_turn()
            continue
        subject, reply, payload = each
        acked = read_ack_subject(subject)
        is_plain = not reply and read_ack(payload) == Ack(AckKind.ACK)
        seen: Seen = (subject.encode(), reply, payload)
        consumer = subject.split(".")[3]
        if is_plain and acked is not None and 0 < acked.stream_sequence < 2**63:
            offset = acked.stream_sequence - 1
            seen = ("s", acked.consumer, acked.partition, acked.mark, offset)
        router.publish(subject.encode(), payload, reply=reply)
        expected.setdefault(consumer, []).append(seen)
    router.end_turn()
    for consumer, in_order in expected.items():
        ours = [
            it
            for it in taken.seen
            if (it[1] if len(it) == 5 else it[0].decode().split(".")[3]) == consumer
        ]
        assert ours == in_order


def test_messages_that_follow_each_other_are_one_run() -> None:
    router, taken = Router(), Taken()
    intake = AckIntake(router, gathered=taken.gathered, told=taken.told, failed=fail)
    router.add(Subscription(intake, b"$JS.ACK.s.>"))
    for sequence in range(1, 101):
        router.publish(f"$JS.ACK.s.c.1.{sequence}.{sequence}.7.0".encode(), b"")
    router.end_turn()
    assert (len(taken.seen), taken.runs) == (100, 1)


def test_error_of_one_consumer_does_not_stop_others() -> None:
    errors: list[Exception] = []
    seen: list[str] = []

    def gathered(_: str, consumer: str, __: list[AckRun]) -> None:
        seen.append(consumer)
        if consumer == "c":
            raise RuntimeError(consumer)

    router = Router()
    intake = AckIntake(router, gathered=gathered, told=lambda *_: None, failed=errors.append)
    router.add(Subscription(intake, b"$JS.ACK.s.>"))
    for consumer in ("c", "d"):
        router.publish(f"$JS.ACK.s.{consumer}.1.1.1.7.0".encode(), b"")
    router.end_turn()
    assert (seen, [str(it) for it in errors]) == (["c", "d"], ["c"])
