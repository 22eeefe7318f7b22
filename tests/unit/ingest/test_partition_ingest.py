import asyncio
from typing import Any

import pytest

from streamlog.errors import (
    NotEnoughReplicas,
    NotLeader,
    StorageFailed,
    StorageFull,
    StreamNotFound,
)
from streamlog.ingest.admission.publish_headers import AckPolicy
from streamlog.ingest.admission.refusal import NO_KEY, STANDS_STILL
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.ingest.partition_ingest import PartitionIngest
from streamlog.metadata.stream.write_state import WriteState
from streamlog.record.codec import iter_records
from tests.ingest_way import StrictIngest, Way, message


@pytest.fixture
async def way() -> Way:
    return Way()


async def test_acks_come_with_the_commit_and_in_one_write(way: Way) -> None:
    way.read(message("a"), message(), message("b"))
    way.read(message("c"))
    assert way.told() == []
    assert way.room.taken_bytes > 0
    way.partition.commit()
    await asyncio.sleep(0)
    assert len(way.written) == 1
    assert way.told() == [
        (reply, {"stream": "orders", "seq": seq})
        for reply, seq in (("a", 11), ("b", 13), ("c", 14))
    ]
    assert way.room.taken_bytes == 0
    assert way.count("publish_acked") == 3


@pytest.mark.parametrize(
    ("error", "err_code", "reason"),
    [
        (StorageFull("full"), 10077, "storage_full"),
        (StorageFailed("broken"), 10077, "storage_failed"),
        (NotLeader("not here"), 10008, "not_leader"),
        (NotEnoughReplicas("alone"), 10077, "not_enough_replicas"),
        (StreamNotFound("gone"), 10059, "stream_gone"),
        (ZeroDivisionError(), 10077, "internal"),
    ],
)
async def test_an_append_that_fails_is_refused_at_once(
    way: Way, error: Exception, err_code: int, reason: str
) -> None:
    way.partition.fault = error
    way.read(message("a", Nats_Msg_Id="1"), message(), message("b", Nats_Msg_Id="1"))
    assert way.refused() == [("a", err_code), ("b", err_code)]
    assert way.count("publish_rejected", reason=reason) == 3
    assert way.room.taken_bytes == 0
    way.partition.fault = None
    way.read(message("a", Nats_Msg_Id="1"))
    way.partition.commit()
    assert way.told() == [("a", {"stream": "orders", "seq": 11})]


async def test_a_failed_sync_refuses_and_forgets_all_that_waits(way: Way) -> None:
    way.read(message("a", Nats_Msg_Id="1"))
    way.read(message("b", Nats_Msg_Id="2"))
    way.read(message("again", Nats_Msg_Id="1"))
    way.partition.fail(StorageFailed("broken"))
    assert way.refused() == [("a", 10077), ("again", 10077), ("b", 10077)]
    assert (way.room.taken_bytes, way.ingest.pending_count, len(way.ingest.deduplicator)) == (
        0,
        0,
        0,
    )


async def test_a_duplicate_waits_for_the_commit_of_the_first(way: Way) -> None:
    way.read(message("a", Nats_Msg_Id="1"))
    way.read(message("b", Nats_Msg_Id="2"))
    way.read(message("again", Nats_Msg_Id="1"), message("c"), message("twice", Nats_Msg_Id="2"))
    assert way.told() == []
    way.partition.commit()
    duplicate = {"stream": "orders", "duplicate": True}
    assert sorted(way.told(), key=lambda each: each[0]) == [
        ("a", {"stream": "orders", "seq": 11}),
        ("again", {**duplicate, "seq": 11}),
        ("b", {"stream": "orders", "seq": 12}),
        ("c", {"stream": "orders", "seq": 13}),
        ("twice", {**duplicate, "seq": 12}),
    ]
    way.read(message("later", Nats_Msg_Id="1"))
    assert way.told() == [("later", {**duplicate, "seq": 11})]


async def test_a_conflict_waits_for_the_commit_of_what_it_conflicts_with(way: Way) -> None:
    """Its publisher could not read that message yet, and it may be lost with its leader."""
    way.read(expecting("a"), expecting("conflict"))
    way.read(expecting("late"))
    assert way.told() == []
    way.partition.commit()
    assert way.told() == [
        ("a", {"stream": "orders", "seq": 11}),
        ("conflict", wrong_last(11)),
        ("late", wrong_last(11)),
    ]
    way.read(expecting("later"))
    assert way.told() == [("later", wrong_last(11))]
    assert (way.room.taken_bytes, way.count("publish_rejected", reason="expectation")) == (0, 3)


async def test_a_conflict_with_what_is_not_stored_is_none(way: Way) -> None:
    way.partition.fault = StorageFull("full")
    way.read(expecting("a"), expecting("conflict"))
    assert way.refused() == [("a", 10077), ("conflict", 10077)]
    way.partition.fault = None
    way.read(expecting("a"), expecting("conflict"))
    way.partition.fail(NotLeader("replaced"))
    assert way.refused() == [("a", 10008), ("conflict", 10008)]


async def test_a_conflict_without_enough_replicas_waits_for_none(way: Way) -> None:
    way.read(message("a"))
    way.partition.below_min_isr = True
    way.read(message("conflict", Nats_Expected_Last_Sequence="10"))
    assert way.told() == [("conflict", way.refusal_json())]


async def test_a_conflict_of_a_batch_waits_like_another_one() -> None:
    way = Way(batches=True, in_flight_bytes_max=100_000, message_bytes_max=5_000)
    way.read(message("a"))
    way.read(
        message(
            "batch",
            Nats_Batch_Id="b",
            Nats_Batch_Sequence="1",
            Nats_Batch_Commit="1",
            Nats_Expected_Last_Sequence="10",
        )
    )
    assert way.told() == []
    way.partition.commit()
    assert way.told() == [
        ("a", {"stream": "orders", "seq": 11}),
        ("batch", wrong_last(11)),
    ]


async def test_too_large_messages_leave_the_others_alone(way: Way) -> None:
    way.read(message("a"), message("big", b"x" * 101), message("", b"x" * 101), message("b"))
    assert way.refused() == [("big", 10054)]
    assert way.count("publish_rejected", reason="too_large") == 2
    way.partition.commit()
    assert [reply for reply, _ in way.told()] == ["a", "b"]


async def test_without_room_everything_is_refused_until_there_is(way: Way) -> None:
    for i in range(200):
        way.read(message(f"r{i}", b"x" * 100))
    await way.room.wait()  # the stall is over, and nothing was committed
    stored = way.partition.log_end_offset
    way.read(message("a", Nats_Msg_Id="1"), message("b"))
    assert way.refused() == [("a", 10167), ("b", 10167)]
    assert way.partition.log_end_offset == stored
    way.partition.commit()
    way.read(message("c", Nats_Msg_Id="1"))
    way.partition.commit()
    assert way.told()[-1] == ("c", {"stream": "orders", "seq": stored + 1})


async def test_wishes_for_another_ack() -> None:
    way = Way(default_ack=AckPolicy.APPENDED)
    way.read(message("a"), message("b", Streamlog_Ack="all"), message("c", Streamlog_Ack="none"))
    assert way.told() == [("a", {"stream": "orders", "seq": 11})]
    way.partition.commit()
    assert way.told() == [("b", {"stream": "orders", "seq": 12})]


async def test_who_wishes_no_ack_is_still_refused(way: Way) -> None:
    way.partition.fault = StorageFull("full")
    way.read(message("a", Streamlog_Ack="none"))
    assert way.refused() == [("a", 10077)]


async def test_a_silent_stream_says_nothing() -> None:
    way = Way(answering=False)
    way.read(
        message("a"), message("b", b"x" * 101), message("c", Nats_Expected_Last_Sequence="1"),
        message("d", Nats_Msg_Id="1"), message("e", Nats_Msg_Id="1"),
    )  # fmt: skip
    way.partition.commit()
    assert way.told() == []
    assert way.partition.high_watermark == 12


async def test_judging_that_goes_wrong_refuses_one_message(
    way: Way, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def admit(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(way.ingest.deduplicator, "admit", admit)
    way.read(message("a"), message("b", Streamlog_Ack="all"), message("c"))
    assert way.refused() == [("b", 10077)]
    way.partition.commit()
    assert [reply for reply, _ in way.told()] == ["a", "c"]
    assert "a bug" in caplog.text


async def test_checks_that_cannot_look_leave_the_message_to_be_judged(
    way: Way, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def now_ms() -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr(way.ingest, "_now_ms", now_ms)
    way.read(message("a"), message("b", Nats_Msg_Id="1"))
    monkeypatch.undo()
    way.read(message("c", Nats_Msg_Id="1"))
    assert way.refused() == [("b", 10077)]
    way.partition.commit()
    assert way.told() == [
        ("a", {"stream": "orders", "seq": 11}),
        ("c", {"stream": "orders", "seq": 12}),
    ]
    assert "a bug" in caplog.text


async def test_offsets_are_looked_up_again_after_a_judgement_that_had_the_run_appended(
    way: Way,
) -> None:
    """As the last message of a batch does that has no room behind the run."""
    admit = way.ingest.inflow.admit
    assert admit is not None

    def take_and_admit(block: bytes, subject: bytes, reply: bytes, _: int) -> Any:
        way.ingest.take()
        return admit(block, subject, reply, way.ingest.inflow.run.count)

    way.ingest.inflow.admit = take_and_admit
    way.read(message(Nats_Msg_Id="1"), message(Streamlog_Ack="all"), message(Nats_Msg_Id="2"))
    (slot,), last = way.ingest.deduplicator.known()
    assert (slot.ids(), last) == ({b"1": 10, b"2": 12}, (b"2", 12))


async def test_other_limits_after_a_change(way: Way) -> None:
    way.ingest.configure(
        IngestSettings(message_bytes_max=3, default_ack=AckPolicy.NEVER, answering=True)
    )
    way.read(message("a"), message("b", b"long"))
    assert way.refused() == [("b", 10054)]
    way.partition.commit()
    assert way.told() == []


async def test_what_comes_after_a_change_by_an_ended_subscription_is_stored(way: Way) -> None:
    """The parser still has the inflow that it got when it was subscribed."""
    way.ingest.configure(
        IngestSettings(message_bytes_max=100, default_ack=AckPolicy.COMMITTED, answering=True)
    )
    way.read(message("a", Nats_Msg_Id="1"))
    way.read(message("b", Nats_Msg_Id="1"))
    way.partition.commit()
    assert way.partition.log_end_offset == 11
    assert [reply for reply, _ in way.told()] == ["a", "b"]


async def test_a_retry_of_what_a_former_leader_appended_waits_for_its_commit(way: Way) -> None:
    way.partition.log_end_offset = 13  # three records above the high watermark, none of them ours
    way.ingest.deduplicator.remember(b"old", 11, 1_000_000)
    way.ingest.deduplicator.remember(b"older", 9, 1_000_000)
    way.read(message("a", Nats_Msg_Id="old"), message("b", Nats_Msg_Id="older"))
    assert way.told() == [("b", {"stream": "orders", "seq": 10, "duplicate": True})]
    assert way.room.taken_bytes > 0
    way.partition.commit()
    assert way.told() == [("a", {"stream": "orders", "seq": 12, "duplicate": True})]
    assert (way.room.taken_bytes, way.partition.watchers) == (0, [])


async def test_who_waits_when_leadership_ends_is_refused(way: Way) -> None:
    way.partition.log_end_offset = 13
    way.ingest.deduplicator.remember(b"old", 11, 1_000_000)
    way.read(message("a", Nats_Msg_Id="old"), message("b", Nats_Msg_Id="new"))
    way.partition.fail(NotLeader("another leads"))
    way.ingest.close()
    assert way.refused() == [("b", 10008), ("a", 10008)]
    way.read(message("late"), message("later", Nats_Msg_Id="new"))
    assert way.refused() == [("late", 10008), ("later", 10008)]
    assert (way.partition.log_end_offset, way.room.taken_bytes) == (14, 0)
    assert way.partition.watchers == []


async def test_a_node_that_stops_lets_nobody_wait(way: Way) -> None:
    way.read(message("a", Nats_Msg_Id="1"))
    way.read(message("again", Nats_Msg_Id="1"))
    way.ingest.give_up()
    assert way.refused() == [("again", 10008), ("a", 10008)]
    assert way.room.taken_bytes == 0
    way.partition.fail(NotLeader("the node stops"))
    assert way.told() == []


async def test_with_too_few_replicas_who_waits_for_them_is_refused(way: Way) -> None:
    way.partition.below_min_isr = True
    way.read(message("a"), message("b", Nats_Msg_Id="1"), message("c", Streamlog_Ack="all"))
    assert way.refused() == [("b", 10077), ("c", 10077), ("a", 10077)]
    assert way.count("publish_rejected", reason="not_enough_replicas") == 3
    assert (way.partition.batches, len(way.ingest.deduplicator)) == ([], 0)
    way.partition.below_min_isr = False
    way.read(message("b", Nats_Msg_Id="1"))
    way.partition.commit()
    assert way.told() == [("b", {"stream": "orders", "seq": 11})]


async def test_who_does_not_wait_for_replicas_goes_on_without_them(way: Way) -> None:
    way.partition.below_min_isr = True
    way.read(
        message("a", b"plain"),
        message("b", b"leader", Streamlog_Ack="leader", X_Colour="red"),
        message("", b"plain, too"),
        message("c", b"none", Streamlog_Ack="none", Nats_Msg_Id="1", Streamlog_Key="k"),
        message("again", b"none", Streamlog_Ack="leader", Nats_Msg_Id="1"),
        message("d", b"leader", Streamlog_Ack="leader", Nats_Expected_Last_Sequence="14"),
    )
    assert way.told() == [
        ("a", way.refusal_json()),
        ("d", wrong_last(12)),
        ("b", {"stream": "orders", "seq": 11}),
    ]
    assert way.count("publish_rejected", reason="not_enough_replicas") == 2
    records = list(iter_records(way.partition.batches[0]))
    assert [(r.key, r.value) for r in records] == [(None, b"leader"), (b"k", b"none")]
    assert records[0].headers == (
        ("subject", b"orders"), ("reply", b"b"), ("Streamlog-Ack", b"leader"),
        ("X-Colour", b"red"),
    )  # fmt: skip
    answer = '{"stream":"orders","seq":12,"duplicate":true}'
    assert (
        way.room.taken_bytes == len("again") + len(answer) + 64
    )  # what nobody waits for takes no room
    way.partition.commit()
    assert way.told() == [("again", {"stream": "orders", "seq": 12, "duplicate": True})]


async def test_a_stream_that_acks_at_the_leader_goes_on_without_replicas() -> None:
    way = Way(default_ack=AckPolicy.APPENDED)
    way.partition.below_min_isr = True
    way.read(message("a"), message("b", Streamlog_Ack="all", Nats_Msg_Id="1"), message("c"))
    assert way.told() == [
        ("b", way.refusal_json()),
        ("a", {"stream": "orders", "seq": 11}),
        ("c", {"stream": "orders", "seq": 12}),
    ]
    assert (way.room.taken_bytes, way.ingest.pending_count) == (0, 0)
    way.partition.fail(NotLeader("another leads"))
    assert way.told() == []


def expecting(reply: str) -> bytes:
    """The first message of the log, or none."""
    return message(reply, Nats_Expected_Last_Sequence="10")


def wrong_last(sequence: int) -> dict[str, object]:
    description = f"wrong last sequence: {sequence}"
    error = {"code": 400, "err_code": 10071, "description": description}
    return {"error": error, "stream": "orders", "seq": 0}


async def test_a_compacted_stream_refuses_what_has_no_key(way: Way) -> None:
    way.ingest.configure(IngestSettings(message_bytes_max=100, keyed=True))
    way.read(
        message("a"), message("b", Streamlog_Key="k"), message(), message("c", Nats_Msg_Id="1")
    )
    error = {"code": 400, "err_code": 10003, "description": NO_KEY.description}
    assert way.told() == [
        (reply, {"error": error, "stream": "orders", "seq": 0}) for reply in ("a", "c")
    ]
    assert "Streamlog-Key" in NO_KEY.description
    assert way.count("publish_rejected", reason="no_key") == 3
    way.partition.commit()
    assert way.told() == [("b", {"stream": "orders", "seq": 11})]
    way.read(message("c", Nats_Msg_Id="1", Streamlog_Key="k"))  # its id was not taken
    way.partition.commit()
    assert way.told() == [("c", {"stream": "orders", "seq": 12})]


async def test_a_stream_that_stands_still_refuses_all_in_their_order(way: Way) -> None:
    way.read(message("first", Nats_Msg_Id="1"))
    way.partition.commit()
    way.told()
    settings = IngestSettings(message_bytes_max=100)
    way.ingest.configure(settings._replace(shut=STANDS_STILL[WriteState.PAUSED]))
    way.read(
        message("plain"),
        message("again", Nats_Msg_Id="1"),
        message("new", Nats_Msg_Id="2"),
        message("batch", Nats_Batch_Id="b", Nats_Batch_Sequence="1"),
    )
    assert way.refused() == [(reply, 10118) for reply in ("plain", "again", "new", "batch")]
    assert way.count("publish_rejected", reason="paused") == 4
    way.ingest.configure(settings)
    way.read(message("new", Nats_Msg_Id="2"))
    way.partition.commit()
    assert way.told() == [("new", {"stream": "orders", "seq": 12})]


async def test_what_is_too_large_is_refused_for_the_standstill_first(way: Way) -> None:
    settings = IngestSettings(message_bytes_max=100)
    way.ingest.configure(settings._replace(shut=STANDS_STILL[WriteState.SEALED]))
    way.read(message("large", b"x" * 200))
    assert way.refused() == [("large", 10109)]


async def test_what_a_take_that_raised_left_behind_is_refused_and_forgotten(
    way: Way, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(way.room, "take", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        way.read(message("a", Nats_Msg_Id="1"))
    monkeypatch.setattr(StrictIngest, "drop", PartitionIngest.drop)
    caplog.clear()
    way.read(message("c", Nats_Msg_Id="1"))
    assert [it.getMessage() for it in caplog.records] == ["messages could not be taken"]
    monkeypatch.undo()
    way.read(message("b"), message("again", Nats_Msg_Id="1"))
    way.partition.commit()
    assert way.told() == [
        ("b", {"stream": "orders", "seq": 11}),
        ("again", {"stream": "orders", "seq": 12}),
    ]
