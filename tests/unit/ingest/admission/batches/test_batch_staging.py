"""Batches through an ingest: what is stored, what is said, what is left behind."""

import pytest

from streamlog.errors import NotLeader, StorageFull
from streamlog.ingest.admission.batches.batch_staging import IDLE_MS_MAX
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.metadata.stream.stream_config import StreamConfig
from tests.ingest_way import Way, message


def batch(
    number: int, reply: str = "", payload: bytes = b"x", batch_id: str = "b", **headers: str
) -> bytes:
    asked = {"Nats_Batch_Id": batch_id, "Nats_Batch_Sequence": str(number), **headers}
    return message(reply, payload, **asked)


def end(number: int, reply: str = "end", payload: bytes = b"last", **headers: str) -> bytes:
    return batch(number, reply, payload, Nats_Batch_Commit="1", **headers)


@pytest.fixture
async def way() -> Way:
    return Way(batches=True, in_flight_bytes_max=100_000, message_bytes_max=5_000)


async def test_a_batch_is_one_record_batch_between_its_neighbours(way: Way) -> None:
    way.read(batch(1, "a", b"1"), message("before", b"before"), batch(2, payload=b"2"))
    assert way.told() == [("a", None)]
    way.read(message("just", b"y"), end(3), message("after", b"z"))
    assert way.told() == []
    way.partition.commit()
    assert way.told() == [
        ("before", {"stream": "orders", "seq": 11}),
        ("just", {"stream": "orders", "seq": 12}),
        ("after", {"stream": "orders", "seq": 16}),
        ("end", {"stream": "orders", "seq": 15, "batch": "b", "count": 3}),
    ]
    assert len(way.partition.batches) == 2
    assert way.partition.values() == [b"before", b"y", b"1", b"2", b"last", b"z"]
    assert (way.staging.count, way.staging.taken_bytes, way.room.taken_bytes) == (0, 0, 0)


async def test_an_end_that_is_no_message(way: Way) -> None:
    way.read(batch(1, payload=b"1"), batch(2, "end", Nats_Batch_Commit="eob"), message("after"))
    way.partition.commit()
    assert way.told() == [
        ("after", {"stream": "orders", "seq": 12}),
        ("end", {"stream": "orders", "seq": 11, "batch": "b", "count": 1}),
    ]
    assert way.headers()[0][-1] == ("Nats-Batch-Commit", b"1")


async def test_nothing_of_a_batch_is_stored_that_is_refused(way: Way) -> None:
    way.read(message("m", Nats_Msg_Id="i"))
    way.read(batch(1, Nats_Msg_Id="new"), end(2, Nats_Msg_Id="i"))
    way.partition.commit()
    assert [reply for reply, _ in way.told()] == ["end", "m"]
    assert way.partition.values() == [b"x"]
    way.read(message("again", Nats_Msg_Id="new"))
    way.partition.commit()
    assert way.told() == [("again", {"stream": "orders", "seq": 12})]


async def test_a_batch_whose_append_fails_is_refused_as_a_whole(way: Way) -> None:
    way.partition.fault = StorageFull("full")
    way.read(batch(1, Nats_Msg_Id="i"), end(2))
    assert way.refused() == [("end", 10077)]
    way.partition.fault = None
    way.read(message("m", Nats_Msg_Id="i"))
    way.partition.commit()
    assert way.told() == [("m", {"stream": "orders", "seq": 11})]


async def test_a_batch_that_is_never_committed_is_refused_as_a_whole(way: Way) -> None:
    way.read(batch(1), end(2))
    way.partition.fail(NotLeader("another leads"))
    assert way.refused() == [("end", 10008)]
    assert way.room.taken_bytes == 0


async def test_too_few_replicas_refuse_a_batch_at_once(way: Way) -> None:
    way.read(batch(1))
    way.partition.below_min_isr = True
    way.read(end(2))
    assert way.refused() == [("end", 10077)]
    assert way.partition.values() == []
    assert way.staging.count == 0


async def test_an_idle_batch_is_given_up(way: Way) -> None:
    way.read(batch(1), batch(1, batch_id="c"))
    way.now_ms += IDLE_MS_MAX - 1
    way.read(batch(2))
    way.now_ms += 1
    way.ingest.batching.expire(way.now_ms)
    assert way.given_up == [(b"c", "timeout")]
    way.read(batch(2, "late", batch_id="c"), end(3))
    way.partition.commit()
    assert [reply for reply, _ in way.told()] == ["late", "end"]


async def test_a_leader_that_goes_forgets_its_batches(way: Way) -> None:
    way.read(batch(1), batch(1, batch_id="c"))
    assert way.staging.count == 2 and way.room.taken_bytes > 0
    way.ingest.close()
    assert (way.staging.count, way.room.taken_bytes) == (0, 0)
    way.read(end(2))
    assert way.refused() == [("end", 10008)]


async def test_batches_get_a_part_of_the_room(way: Way) -> None:
    """The one that asks for more than is left is given up, and those that were there go on."""
    way.read(*(batch(1, payload=b"v" * 4_000, batch_id=f"b{number}") for number in range(6)))
    assert way.told() == []
    way.read(batch(2, "full", payload=b"v" * 4_000, batch_id="b0"))
    way.read(batch(3, "fuller", batch_id="b0"))
    assert [reply for reply, _ in way.told()] == ["full", "fuller"]
    assert way.given_up == [(b"b0", "large")]
    way.read(end(2, batch_id="b1"))
    way.partition.commit()
    assert [reply for reply, _ in way.told()] == ["end"]


async def test_batches_are_refused_where_they_are_not_allowed(way: Way) -> None:
    way.read(batch(1))
    way.ingest.configure(
        IngestSettings(message_bytes_max=100, default_ack=way.ingest.default_ack, answering=True)
    )
    way.read(batch(1, "a"), end(2))
    assert way.refused() == [("a", 10174), ("end", 10174)]


async def test_a_stream_that_never_answers_stores_batches(way: Way) -> None:
    way.ingest.configure(
        IngestSettings(
            message_bytes_max=100, default_ack=way.ingest.default_ack, answering=False, batches=True
        )
    )
    way.read(batch(1, "a"), end(2))
    way.partition.commit()
    assert way.told() == []
    assert way.partition.values() == [b"x", b"last"]


async def test_the_api_level_that_is_asked_for(way: Way) -> None:
    way.read(batch(1), batch(2, "no", Nats_Required_Api_Level="5"), end(2))
    assert way.refused() == [("no", 10185), ("end", 10176)]
    assert way.given_up == [(b"b", "unsupported")]


# Batches beside messages of the same read that are refused


def full_way(**limits: object) -> Way:
    way = Way(batches=True, bounded=True, in_flight_bytes_max=100_000, message_bytes_max=5_000)
    way.partition.config = StreamConfig.of(
        name="orders", discard="new", allow_atomic=True, **limits
    )
    return way


async def test_the_ids_of_a_batch_stay_known_where_a_message_of_its_read_is_refused() -> None:
    way = full_way(retention_messages=2)
    way.read(batch(1, Nats_Msg_Id="1"), end(2, Nats_Msg_Id="2"), message("over"))
    assert way.refused() == [("over", 10077)]
    way.partition.commit()
    way.told()
    way.partition.config = StreamConfig.of(name="orders", allow_atomic=True)
    way.read(batch(1, Nats_Msg_Id="1"), end(2, "again", Nats_Msg_Id="2"))
    way.read(message("single", Nats_Msg_Id="2"))
    again, single = way.told()
    assert again[1]["error"]["err_code"] == 10201
    assert single == ("single", {"stream": "orders", "seq": 12, "duplicate": True})
    assert way.partition.log_end_offset == 12


async def test_a_batch_that_moves_is_answered_as_a_batch() -> None:
    way = full_way(max_messages_per_subject=1, discard_new_per_subject=True)
    way.read(message("first"))
    way.read(
        message("over"),
        batch(1, subject="a", Nats_Msg_Id="1"),
        end(2, subject="b"),
        message("again", subject="c", Nats_Msg_Id="1"),
    )
    assert way.refused() == [("over", 10077)]
    way.partition.commit()
    assert sorted(way.told(), key=lambda it: it[0]) == [
        ("again", {"stream": "orders", "seq": 12, "duplicate": True}),
        ("end", {"stream": "orders", "seq": 13, "batch": "b", "count": 2}),
        ("first", {"stream": "orders", "seq": 11}),
    ]


async def test_a_batch_that_moves_is_judged_anew() -> None:
    """It expected the message that is refused."""
    way = full_way(max_messages_per_subject=1, discard_new_per_subject=True)
    way.read(message("first"))
    way.read(
        message("over"),
        batch(1, subject="a", Nats_Msg_Id="1", Nats_Expected_Last_Sequence="12"),
        end(2, subject="b"),
        message("next", subject="c", Nats_Msg_Id="1"),
    )
    way.partition.commit()
    assert sorted(way.told(), key=lambda it: it[0])[0][1]["error"]["err_code"] == 10071
    assert way.partition.values() == [b"x"]  # the one that was a repetition is to be sent again


async def test_a_message_with_an_empty_batch_id_is_no_batch() -> None:
    way = full_way(retention_messages=1)
    way.read(message("a"), message("over", Nats_Batch_Id=""))
    assert way.refused() == [("over", 10077)]
    assert way.partition.log_end_offset == 11


async def test_a_batch_is_refused_as_a_whole_where_replicas_go_within_its_read() -> None:
    way = Way(batches=True, in_flight_bytes_max=100_000)
    for inflow in way.parser.feed(
        message("leader", Streamlog_Ack="leader")
        + batch(1, Nats_Msg_Id="1", Streamlog_Ack="leader")
        + end(2)
    ):
        way.partition.below_min_isr = True
        assert inflow is way.ingest.inflow
        way.ingest.take()
    assert [reply for reply, answer in way.told() if "error" in answer] == ["end"]
    assert way.partition.values() == [b"x"]


async def test_a_batch_repeated_before_it_is_committed_is_to_be_sent_again(way: Way) -> None:
    """Whoever hears that it is a repetition takes it for stored, and it may yet be lost."""
    way.read(batch(1, Nats_Msg_Id="1"), end(2))
    way.read(batch(1, Nats_Msg_Id="1"), end(2, "again"))
    assert way.refused() == [("again", 10008)]
    way.partition.commit()
    way.told()
    way.read(batch(1, Nats_Msg_Id="1"), end(2, "later"))
    assert way.refused() == [("later", 10201)]


@pytest.mark.parametrize("extra", [300_000, 500_000, 700_000])
async def test_a_batch_that_nearly_fills_the_run_costs_nobody_else(extra: int) -> None:
    """Two in one read, and a message behind them that is no larger than it may be."""
    mib = 1 << 20
    way = Way(batches=True, in_flight_bytes_max=1 << 40, message_bytes_max=mib)
    body = b"x" * (mib - 4_096)
    for batch_id, count in (("p", 64), ("q", 63)):
        for number in range(1, count):
            way.read(batch(number, payload=body, batch_id=batch_id))
    way.read(batch(63, payload=b"x" * extra, batch_id="q"))
    way.read(
        end(64, "p", body[:-90_000], Nats_Batch_Id="p"),
        end(64, "q", body, Nats_Batch_Id="q"),
        message("headed", b"", Long="y" * 450_000),
        message("last"),
    )
    assert way.refused() == []
    way.partition.commit()
    assert sorted(reply for reply, _ in way.told()) == ["headed", "last", "p", "q"]
