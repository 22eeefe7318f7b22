"""Counters of one partition: what cannot be counted is refused, and nothing of it is stored."""

import pytest

from streamlog.errors import NotLeader, StorageFailed
from streamlog.ingest.admission.counters import DIGITS_MAX, total_of
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.partition.state import UNAWAITED
from streamlog.record.codec import RecordRun
from tests.ingest_way import Way, message


@pytest.fixture
async def way() -> Way:
    return Way(counters=True, batches=True, message_bytes_max=1 << 20, in_flight_bytes_max=1 << 22)


def add(number: object, reply: str = "r", **headers: str) -> bytes:
    return message(reply, b"", Nats_Incr=str(number), **headers)


def values(way: Way) -> list[object]:
    way.partition.commit()
    return [
        answer["error"]["err_code"] if "error" in answer else answer.get("val")
        for _, answer in way.told()
    ]


def write(way: Way, value: bytes) -> None:
    """As a Kafka producer does."""
    run = RecordRun()
    run.append(None, value, [(b"subject", b"orders")])
    way.partition.append(run, UNAWAITED)


async def test_the_ack_has_the_value_and_comes_with_the_commit(way: Way) -> None:
    way.read(add(1), add(2, "s"), add(3, ""))
    assert way.told() == []
    way.partition.commit()
    assert way.told() == [
        ("r", {"stream": "orders", "seq": 11, "val": "1"}),
        ("s", {"stream": "orders", "seq": 12, "val": "3"}),
    ]
    assert way.partition.values() == [b'{"val":"1"}', b'{"val":"3"}', b'{"val":"6"}']


@pytest.mark.parametrize("value", [b"", b"5", b"{}", b'{"val":5}', b'{"val":"x"}', b"\xff", b"["])
async def test_what_is_no_counter_is_not_added_to(way: Way, value: bytes) -> None:
    way.read(add(1))
    write(way, value)
    way.read(add(2, Nats_Msg_Id="i"))
    assert values(way) == [10172, "1"]
    write(way, b'{"val":"40"}')
    way.read(add(2, Nats_Msg_Id="i"))
    assert values(way) == ["42"], "its id was not taken for stored"


async def test_a_batch_with_a_broken_counter_is_refused_whole(way: Way) -> None:
    write(way, b"broken")
    good = {"Nats_Batch_Id": "b", "Nats_Msg_Id": "i"}
    way.read(
        message("", b"", subject="other", Nats_Incr="1", Nats_Batch_Sequence="1", **good),
        add(1, Nats_Batch_Id="b", Nats_Batch_Sequence="2", Nats_Batch_Commit="1"),
        message("s", b"", subject="other", Nats_Incr="1", Nats_Msg_Id="i"),
    )
    assert values(way) == [10172, "1"]


async def test_an_increment_that_is_too_long_is_refused(way: Way) -> None:
    longest = "9" * DIGITS_MAX
    way.read(add(longest), add(longest), add(longest + "9"), add(f"-{longest}"[:-1]))
    told = values(way)
    assert told[:2] == [10171, longest], "what is refused is told at once"
    assert int(str(told[2])) == 2 * int(longest)


def test_a_total_that_cannot_be_read_is_none() -> None:
    assert total_of(b'{"val":"%s"}' % (b"9" * 5_000)) is None
    assert total_of(b"[" * 100_000) is None


async def test_asking_again_helps_while_the_log_is_not_known(way: Way) -> None:
    way.read(add(1))
    way.partition.subjects.is_known = False
    way.read(add(1))
    assert values(way) == [10008, "1"]
    way.partition.subjects.is_known = True
    write(way, b'{"val":"7"}')
    way.partition.reader.may_read_now = False
    way.read(add(1))
    assert values(way) == [10008]
    way.partition.reader.may_read_now = True
    way.read(add(1))
    assert values(way) == ["8"]


async def test_nothing_is_counted_while_replicas_are_away(way: Way) -> None:
    way.partition.below_min_isr = True
    way.read(add(1), add(1, Streamlog_Ack="leader"))
    assert values(way) == [10077, 10077]
    way.partition.below_min_isr = False
    way.read(add(1))
    assert values(way) == ["1"]


async def test_who_wants_no_ack_gets_none(way: Way) -> None:
    way.read(add(1, Streamlog_Ack="none"), add(1, "s", Streamlog_Ack="leader"))
    assert values(way) == ["2"]


async def test_a_stream_without_acks_counts_silently(way: Way) -> None:
    way.ingest.configure(IngestSettings(1 << 20, counters=True, answering=False))
    way.read(add(1), add(2), add("x"))
    assert values(way) == []
    assert way.partition.values() == [b'{"val":"1"}', b'{"val":"3"}']


async def test_an_append_that_fails_counts_nowhere(way: Way) -> None:
    way.read(add(1))
    way.partition.fault = StorageFailed("broken")
    way.read(add(10), add(10))
    way.partition.fault = None
    way.read(add(100))
    assert values(way) == [10077, 10077, "1", "101"]


async def test_a_run_that_was_counted_for_another_place_is_not_stored(way: Way) -> None:
    for inflow in way.parser.feed(add(5, "a")):
        write(way, b'{"val":"1000"}')
        assert inflow is way.ingest.inflow
        way.ingest.take()
    way.read(add(1, "b"))
    assert values(way) == [10077, "1001"]


async def test_a_run_counted_from_what_is_lost_is_not_stored(way: Way) -> None:
    way.read(add(5, "a"))
    for _ in way.parser.feed(add(5, "b")):
        way.partition.fail(StorageFailed("broken"))
        way.ingest.take()
    assert values(way) == [10077, 10077]
    assert way.partition.values() == [b'{"val":"5"}'], "the second one is not there"


async def test_another_leader_ends_it(way: Way) -> None:
    way.read(add(5, "a"))
    way.partition.fail(NotLeader("gone"))
    way.ingest.close()
    way.read(add(5, "b"))
    assert values(way) == [10008, 10008]


async def test_an_envelope_with_nothing_in_it_is_an_increment(way: Way) -> None:
    way.read(message("r", b"\xb9\x0e\x43\xb4\x00\x08\x00\x00", Nats_Incr="1"))
    way.read(message("s", b"\xb9\x0e\x43\xb4\x00\x08\x00\x00"))
    assert values(way) == [10169, "1"]
