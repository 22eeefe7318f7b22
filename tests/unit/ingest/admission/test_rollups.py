"""Messages that have others go: what is answered where the erasure cannot be stored."""

from typing import Any

import pytest

from streamlog.errors import StorageFull
from streamlog.ingest.admission.rollups import NOT_REMOVED
from streamlog.ingest.dedup_recovery.window_scan import look_at_recent, rebuild_window
from tests.ingest_way import Way, message
from tests.led_partition import NOWHERE, as_partition

ALL: dict[str, Any] = {"Nats_Rollup": "all"}


@pytest.fixture
async def way() -> Way:
    way = Way(batches=True, rollups=True, in_flight_bytes_max=100_000, message_bytes_max=5_000)
    for number in range(3):
        way.read(message(str(number)))
    way.partition.commit()
    way.told()
    return way


def kept(way: Way) -> list[int]:
    return [offset for offset in range(10, 14) if offset not in way.partition.erased]


async def test_what_was_before_goes(way: Way) -> None:
    way.read(message("roll", Nats_Msg_Id="1", **ALL))
    assert kept(way) == [13]
    assert way.told() == []
    way.partition.commit()
    assert way.told() == [("roll", {"stream": "orders", "seq": 14})]


@pytest.mark.parametrize("headers", [ALL, ALL | {"Nats_Batch_Id": "b", "Nats_Batch_Commit": "1"}])
async def test_answered_once_no_successor_has_what_is_below_the_log_start(
    way: Way, headers: dict[str, Any]
) -> None:
    """The erasure does not name it."""
    if "Nats_Batch_Id" in headers:
        headers = headers | {"Nats_Batch_Sequence": "1"}
    partition = way.partition
    partition.log_start_offset, partition.start_is_pending = 12, True
    way.read(message("roll", Nats_Msg_Id="1", **headers))
    partition.commit()
    assert way.told() == []
    way.read(message("again", Nats_Msg_Id="1", **ALL))
    way.read(message("next"))
    partition.commit()
    assert [reply for reply, _ in way.told()] == ["next"], "it has nothing go"
    partition.held_from = NOWHERE
    partition.move(partition.high_watermark)
    assert {reply for reply, _ in way.told()} == {"again", "roll"}


async def test_a_retry_removes_what_could_not_be_removed(way: Way) -> None:
    way.partition.erasing.fault = StorageFull("full")
    way.read(message("roll", Nats_Msg_Id="1", **ALL))
    assert way.refused() == [("roll", NOT_REMOVED.err_code)]
    way.partition.commit()
    way.read(message("again", Nats_Msg_Id="1", **ALL))
    assert way.refused() == [("again", NOT_REMOVED.err_code)]
    way.partition.erasing.fault = None
    way.read(message("third", Nats_Msg_Id="1", **ALL))
    assert kept(way) == [13]
    assert way.told() == []  # the erasure is not committed yet
    way.partition.commit()
    assert way.told() == [("third", {"stream": "orders", "seq": 14, "duplicate": True})]


async def test_nothing_comes_between_a_message_and_its_erasure(way: Way) -> None:
    """So that the next leader finds it at the end of the log."""
    way.partition.erasing.fault = StorageFull("full")
    way.read(message("roll", **ALL))
    way.told()
    way.read(message("next", Nats_Msg_Id="2"))
    way.partition.erasing.fault = None
    way.read(message("next", Nats_Msg_Id="2"), message("twice", Nats_Msg_Id="2"))
    assert way.refused() == [("next", 10077), ("next", 10077), ("twice", 10077)]
    assert (kept(way), way.partition.messages_end) == ([13], 14)
    way.read(message("next", Nats_Msg_Id="2"), message("twice", Nats_Msg_Id="2"))
    way.partition.commit()
    assert sorted(way.told(), key=lambda it: it[0]) == [
        ("next", {"stream": "orders", "seq": 16}),
        ("twice", {"stream": "orders", "seq": 16, "duplicate": True}),
    ]


async def test_without_another_message_it_is_tried_again_in_time(way: Way) -> None:
    way.partition.erasing.fault = StorageFull("full")
    way.read(message("roll", **ALL))
    way.ingest.erase_owed()
    assert kept(way) == [10, 11, 12, 13]
    way.partition.erasing.fault = None
    way.ingest.erase_owed()
    assert kept(way) == [13]


async def test_a_batch_whose_erasure_fails_is_not_acknowledged(way: Way) -> None:
    way.partition.erasing.fault = StorageFull("full")
    asked: dict[str, Any] = {
        "Nats_Batch_Id": "b",
        "Nats_Batch_Sequence": "1",
        "Nats_Batch_Commit": "1",
    }
    way.read(message("batch", **asked, **ALL))
    way.partition.commit()
    assert way.refused() == [("batch", NOT_REMOVED.err_code)]


async def test_a_repetition_waits_for_an_erasure_that_is_not_committed(way: Way) -> None:
    way.read(message("roll", Nats_Msg_Id="1", **ALL))
    way.partition.move(14)
    way.read(message("again", Nats_Msg_Id="1", **ALL))
    assert way.told() == []
    way.partition.commit()
    assert [reply for reply, _ in way.told()] == ["roll", "again"]


async def test_a_repetition_waits_for_the_erasure_of_a_former_leader(way: Way) -> None:
    """It is in the log, and not committed. Were it lost, readers would see again what has gone."""
    way.read(message("roll", Nats_Msg_Id="1", **ALL))
    way.ingest.close()
    successor = Way(rollups=True, partition=way.partition)
    partition = as_partition(way.partition)
    await rebuild_window(partition, successor.ingest.deduplicator, since_ms=0)
    (recent,) = await look_at_recent(partition)
    successor.ingest.owe(recent.rollups)
    successor.ingest.erase_owed()
    assert way.partition.log_end_offset == 15, "nothing is to be erased any more"
    way.partition.move(14)
    successor.read(message("again", Nats_Msg_Id="1", **ALL))
    assert successor.told() == []
    way.partition.move(15)
    assert successor.told() == [("again", {"stream": "orders", "seq": 14, "duplicate": True})]
