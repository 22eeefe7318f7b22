"""Fast batches through an ingest, several messages in one read."""

from typing import Any

import pytest

from streamlog.errors import NotLeader, StorageFull
from streamlog.ingest.admission.batches.fast_batches import IDLE_MS_MAX
from streamlog.ingest.admission.publish_headers import AckPolicy
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.ingest.schedules.scheduling_rules import SchedulingRules
from streamlog.metadata.stream.stream_config import StreamConfig
from tests.ingest_way import Way, message

START, APPEND, COMMIT, EOB, PING = range(5)


def part(
    number: int,
    operation: int = APPEND,
    *,
    batch: str = "b",
    flow: int = 2,
    gap: str = "fail",
    **headers: str,
) -> bytes:
    operation = START if number == 1 and operation == APPEND else operation
    reply = f"i.{batch}.{flow}.{gap}.{number}.{operation}.$FI"
    return message(reply, b"%d" % number, **headers)


def said(way: Way) -> list[Any]:
    found: list[Any] = []
    for _, answer in way.told():
        match answer:
            case {"type": "ack", "seq": seq}:
                found.append(f"ack {seq}")
            case {"type": "err", "seq": seq, "error": error}:
                found.append(f"err {seq} {error['err_code']}")
            case {"type": "gap", "seq": seq}:
                found.append(f"gap {seq}")
            case {"error": error}:
                found.append(error["err_code"])
            case {"batch": _, "seq": seq, "count": count}:
                found.append((seq, count))
            case _:
                found.append(answer["seq"])
    return found


@pytest.fixture
async def way() -> Way:
    return Way(fast_batches=True, in_flight_bytes_max=100_000, message_bytes_max=5_000)


async def test_nothing_is_acknowledged_before_its_commit(way: Way) -> None:
    way.read(part(1), part(2), message("m"), part(3))
    assert said(way) == ["ack 0"]
    way.read(part(4), part(5, COMMIT))
    assert said(way) == []
    way.partition.commit()
    assert said(way) == [13, (16, 5)]
    assert way.partition.values() == [b"1", b"2", b"x", b"3", b"4", b"5"]
    assert (way.fast_batches.count, way.room.taken_bytes) == (0, 0)


async def test_no_reply_subject_is_stored(way: Way) -> None:
    way.read(part(1), part(2), part(3, COMMIT, Nats_Msg_Id="i"))
    names = [[name for name, _ in headers] for headers in way.headers()]
    assert names == [["subject"], ["subject"], ["subject", "Nats-Msg-Id"]]


async def test_acks_of_an_append(way: Way) -> None:
    way.ingest.configure(IngestSettings(5_000, fast_batches=True, default_ack=AckPolicy.APPENDED))
    way.read(part(1), part(2), part(3), part(4, COMMIT))
    assert said(way) == ["ack 0", (14, 4)]


@pytest.mark.parametrize("settings", [{"answering": False}, {"default_ack": AckPolicy.NEVER}])
async def test_a_stream_without_acks_says_nothing(way: Way, settings: dict[str, Any]) -> None:
    way.ingest.configure(IngestSettings(5_000, fast_batches=True, **settings))
    way.read(part(1), part(2), part(4), part(2, batch="other"))
    way.partition.commit()
    assert (way.told(), way.partition.values()) == ([], [b"1", b"2"])


async def test_a_read_that_cannot_be_appended_ends_its_batches(way: Way) -> None:
    way.read(part(1), part(2), part(1, gap="ok", batch="loose", flow=9))
    way.partition.commit()
    assert said(way) == ["ack 0", "ack 0", "ack 2", "ack 1"]
    way.partition.fault = StorageFull("full")
    way.read(
        part(3), part(4), part(2, gap="ok", batch="loose", flow=9), part(1, batch="new"), part(2, batch="new"),
    )  # fmt: skip
    assert said(way) == ["ack 0", "err 3 10077", "err 2 10077", 10077, (12, 2)]
    way.partition.fault = None
    way.read(part(5), part(3, EOB, gap="ok", batch="loose"), part(3, batch="new"))
    assert said(way) == [10208, (13, 2), 10208]
    assert way.fast_batches.count == 0


async def test_a_message_that_is_never_committed_ends_its_batch(way: Way) -> None:
    way.read(part(1), part(2))
    way.partition.commit()
    assert said(way) == ["ack 0", "ack 2"]
    way.read(part(3))
    way.read(part(4))
    way.partition.fail(StorageFull("full"))
    assert said(way) == [10077]


async def test_a_leader_that_goes_says_so(way: Way) -> None:
    way.read(part(1), part(2), part(1, batch="idle"))
    said(way)
    way.partition.fail(NotLeader("another leads"))
    way.ingest.close()
    assert said(way) == [10008, 10008]
    way.read(part(3))
    assert said(way) == [10008]
    assert way.fast_batches.count == 0


async def test_an_idle_batch_is_forgotten(way: Way) -> None:
    way.read(part(1), part(1, batch="waiting"))
    way.partition.commit()
    way.read(part(2, batch="waiting"))
    way.now_ms += IDLE_MS_MAX
    way.ingest.expire_batches()
    said(way)
    way.read(part(2), part(3, EOB, batch="waiting"))
    way.partition.commit()
    assert said(way) == [10208, (13, 2)]


async def test_what_has_no_room_in_the_stream_ends_the_batch_there() -> None:
    way = Way(fast_batches=True, bounded=True, in_flight_bytes_max=100_000, message_bytes_max=5_000)
    way.partition.config = StreamConfig.of(name="orders", discard="new", retention_messages=3)
    way.ingest.configure(IngestSettings(5_000, fast_batches=True, bounded=True))
    way.read(
        part(1),
        part(1, batch="o", gap="ok"),
        part(2),
        part(3),
        part(2, batch="o", gap="ok"),
        part(4),
    )
    answers = said(way)
    assert answers == ["ack 0", "ack 0", "err 3 10077", "err 2 10077"]
    way.partition.commit()
    assert said(way) == [(13, 2), "ack 2"]
    assert way.partition.values() == [b"1", b"1", b"2"]
    way.read(part(5), part(3, EOB, batch="o", gap="ok"))
    assert said(way) == [10208, (12, 2)]


async def test_too_few_replicas(way: Way) -> None:
    way.read(part(1), part(2))
    way.partition.commit()
    said(way)
    way.partition.below_min_isr = True
    way.read(part(3), part(4, COMMIT))
    assert said(way) == ["err 4 10077", "err 3 10077", (12, 2)]
    assert way.partition.values() == [b"1", b"2"]


async def test_a_repeated_message_waits_for_the_first_one(way: Way) -> None:
    way.read(message("m", Nats_Msg_Id="i"), part(1, Nats_Msg_Id="i"), part(2, Nats_Msg_Id="i"))
    assert said(way) == ["ack 0"]
    way.read(part(3, COMMIT, Nats_Msg_Id="i"))
    assert said(way) == []
    way.partition.commit()
    assert sorted(map(str, said(way))) == ["(0, 3)", "11"]
    assert way.partition.values() == [b"x"]


async def test_a_stream_that_does_not_allow_it(way: Way) -> None:
    way.ingest.configure(IngestSettings(5_000))
    way.read(part(1), message("m"))
    way.partition.commit()
    assert said(way) == [10205, 11]


async def test_an_ack_is_for_what_is_committed_alone(way: Way) -> None:
    way.read(part(1, flow=1), part(2))
    way.read(part(3), part(4))
    way.read(part(5))
    assert said(way) == ["ack 0"]
    for end, told in ((11, []), (12, ["ack 2"]), (13, []), (14, ["ack 4"]), (15, ["ack 5"])):
        way.partition.move(end)
        assert said(way) == told


async def test_what_a_rollup_could_not_remove_is_not_acknowledged() -> None:
    way = Way(fast_batches=True, rollups=True, in_flight_bytes_max=100_000, message_bytes_max=5_000)
    way.read(message("m"), part(1))
    way.partition.commit()
    assert said(way) == ["ack 0", 11]
    way.partition.erasing.fault = StorageFull("full")
    way.read(part(2), part(3, Nats_Rollup="all"), part(4, COMMIT))
    way.partition.commit()
    assert said(way) == ["err 2 10077", (12, 1)]


async def test_a_repeated_rollup_waits_for_what_it_removes() -> None:
    way = Way(fast_batches=True, rollups=True, in_flight_bytes_max=100_000, message_bytes_max=5_000)
    way.read(message("m"))
    way.partition.commit()
    assert said(way) == [11]
    rollup: dict[str, Any] = {"Nats_Rollup": "all", "Nats_Msg_Id": "i"}
    way.read(message("roll", **rollup), part(1, COMMIT, **rollup))
    assert way.partition.log_end_offset == 13
    way.partition.move(12)
    assert said(way) == []
    way.partition.move(13)
    assert sorted(map(str, said(way))) == ["(12, 1)", "12"]


@pytest.mark.parametrize("in_a_read", [True, False])
async def test_a_repeated_rollup_that_is_owed_is_refused(in_a_read: bool) -> None:
    way = Way(fast_batches=True, rollups=True, in_flight_bytes_max=100_000, message_bytes_max=5_000)
    way.read(message("m"))
    way.partition.commit()
    assert said(way) == [11]
    way.partition.erasing.fault = StorageFull("full")
    rollup: dict[str, Any] = {"Nats_Rollup": "all", "Nats_Msg_Id": "i"}
    parts = message("roll", **rollup), part(1, COMMIT, **rollup)
    for read in [parts] if in_a_read else [parts[:1], parts[1:]]:
        way.read(*read)
    way.partition.commit()
    assert said(way) == [10077, 10077]


async def test_an_end_of_a_schedule_that_could_not_remove_it_is_not_acknowledged() -> None:
    """Nor if its run is made again, without a message that has no room."""
    way = Way(
        fast_batches=True,
        rollups=True,
        schedules=SchedulingRules((b"orders", b"orders.>")),
        bounded=True,
        in_flight_bytes_max=100_000,
        message_bytes_max=5_000,
    )
    way.partition.config = StreamConfig.of(name="orders", discard="new", retention_messages=3)
    way.ingest.configure(
        IngestSettings(
            5_000,
            fast_batches=True,
            rollups=True,
            schedules=SchedulingRules((b"orders", b"orders.>")),
            bounded=True,
        )
    )
    plan: dict[str, Any] = {"Nats_Schedule": "@every 1h", "Nats_Schedule_Target": "orders.target"}
    way.read(message("m", subject="orders.plan", **plan))
    way.partition.commit()
    assert said(way) == [11]
    way.partition.erasing.fault = StorageFull("full")
    end: dict[str, Any] = {"Nats_Schedule_Next": "purge", "Nats_Scheduler": "orders.plan"}
    way.read(part(1, COMMIT, **end), message("a"), message("b"))
    way.partition.commit()
    assert sorted(map(str, said(way))) == ["10077", "10077", "13"]


async def test_a_repeated_message_is_not_acknowledged_by_who_leads_no_more(way: Way) -> None:
    way.read(message("m", Nats_Msg_Id="i"))
    way.partition.is_leader = False
    way.partition.high_watermark = 11  # another's record
    way.read(part(1, Nats_Msg_Id="i"), part(2, COMMIT, Nats_Msg_Id="i"))
    assert said(way) == ["ack 0", 10008]


async def test_a_batch_in_which_gaps_are_ok_ends_with_its_leader(way: Way) -> None:
    way.read(part(1, gap="ok", flow=1))
    way.partition.commit()
    assert said(way) == ["ack 0", "ack 1"]
    way.partition.leader_epoch = 1
    way.read(part(2, gap="ok", flow=1), part(3, gap="ok", flow=1))
    way.read(part(4, COMMIT, gap="ok", flow=1))
    assert said(way) == [10008, 10208]


async def test_a_repeated_message_has_the_sequence_that_the_first_one_gets() -> None:
    way = Way(fast_batches=True, bounded=True, in_flight_bytes_max=100_000, message_bytes_max=5_000)
    way.partition.config = StreamConfig.of(
        name="orders", discard="new", max_messages_per_subject=1, discard_new_per_subject=True
    )
    way.ingest.configure(IngestSettings(5_000, fast_batches=True, bounded=True))
    way.read(
        message("m", subject="full"),
        message("n", subject="full"),
        message("o", subject="other", Nats_Msg_Id="i"),
        part(1, COMMIT, Nats_Msg_Id="i"),
    )
    way.partition.commit()
    assert sorted(map(str, said(way))) == ["(12, 1)", "10077", "11", "12"]
