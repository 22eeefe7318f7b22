"""Messages that are committed by being appended: their acks, and when they wait like all others."""

import asyncio

import pytest

from streamlog.errors import NotLeader, StorageFailed, StorageFull
from streamlog.ingest.admission.publish_headers import AckPolicy
from streamlog.ingest.admission.refusal import STANDS_STILL
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.metadata.stream.write_state import WriteState
from tests.ingest_way import Way, message


@pytest.fixture
async def way() -> Way:
    way = Way()
    way.partition.commits_at_once = True
    return way


def at_once(way: Way) -> bool:
    """Nothing waits for a commit that is yet to come."""
    return not way.partition.waiting and not way.ingest.pending_count


async def test_acks_leave_in_the_turn_of_the_append(way: Way) -> None:
    way.read(message("a"), message(), message("b"))
    way.read(message("c"))
    assert at_once(way)
    await asyncio.sleep(0)
    assert len(way.written) == 1
    assert way.told() == [
        (reply, {"stream": "orders", "seq": seq})
        for reply, seq in (("a", 11), ("b", 13), ("c", 14))
    ]
    assert way.room.taken_bytes == 0
    assert way.count("publish_acked") == 3
    assert way.partition.values() == [b"x"] * 4


async def test_a_run_that_nobody_asks_about_is_stored_at_once_too(way: Way) -> None:
    way.read(message(), message())
    assert at_once(way)
    assert way.told() == []
    assert way.partition.values() == [b"x"] * 2


async def test_ids_are_known_after_an_append_at_once(way: Way) -> None:
    way.read(message("a", Nats_Msg_Id="1"), message("b"))
    assert at_once(way)
    way.read(message("c", Nats_Msg_Id="1"))
    assert way.told() == [
        ("a", {"stream": "orders", "seq": 11}),
        ("b", {"stream": "orders", "seq": 12}),
        ("c", {"stream": "orders", "seq": 11, "duplicate": True}),
    ]
    way.read(message("d"))
    assert at_once(way)
    assert way.told() == [("d", {"stream": "orders", "seq": 13})]


@pytest.mark.parametrize(
    ("error", "err_code", "reason"),
    [
        (StorageFull("full"), 10077, "storage_full"),
        (StorageFailed("broken"), 10077, "storage_failed"),
        (NotLeader("not here"), 10008, "not_leader"),
        (ZeroDivisionError(), 10077, "internal"),
    ],
)
async def test_an_append_at_once_that_fails_is_refused(
    way: Way, error: Exception, err_code: int, reason: str
) -> None:
    way.partition.fault = error
    way.read(message("a", Nats_Msg_Id="1"), message(), message("b"))
    assert way.refused() == [("a", err_code), ("b", err_code)]
    assert way.count("publish_rejected", reason=reason) == 3
    assert way.room.taken_bytes == 0
    way.partition.fault = None
    way.read(message("c", Nats_Msg_Id="1"))  # its id was not taken
    assert way.told() == [("c", {"stream": "orders", "seq": 11})]


async def test_a_message_that_wants_another_ack_is_answered_as_it_asks(way: Way) -> None:
    way.read(message("a", Streamlog_Ack="none"), message("b"))
    assert not at_once(way)
    way.partition.commit()
    assert way.told() == [("b", {"stream": "orders", "seq": 12})]
    way.read(message("c"))
    assert at_once(way)


async def test_what_is_too_large_is_refused_and_the_rest_is_stored(way: Way) -> None:
    way.read(message("a", b"x" * 1_000), message("b"))
    way.partition.commit()
    told = dict(way.told())
    assert told["a"]["error"]["err_code"] == 10054
    assert told["b"] == {"stream": "orders", "seq": 11}


@pytest.mark.parametrize(
    "settings",
    [
        IngestSettings(100, default_ack=AckPolicy.APPENDED),
        IngestSettings(100, answering=False),
        IngestSettings(100, bounded=True),
        IngestSettings(100, keyed=True),
    ],
    ids=["ack", "silent", "bounded", "keyed"],
)
async def test_a_stream_that_is_set_otherwise_takes_the_usual_way(
    way: Way, settings: IngestSettings
) -> None:
    way.ingest.configure(settings)
    way.read(message("a", Streamlog_Key="k"))
    assert not at_once(way)
    way.ingest.configure(IngestSettings(100))
    way.partition.commit()
    way.read(message("b"))
    assert at_once(way)


async def test_nothing_is_stored_at_once_in_a_stream_that_is_shut(way: Way) -> None:
    refusal = STANDS_STILL[WriteState.READONLY]
    way.ingest.configure(IngestSettings(100, shut=refusal))
    way.read(message("a"))
    assert way.refused() == [("a", refusal.err_code)]
    assert way.partition.values() == []


async def test_nothing_is_stored_at_once_after_the_leadership_is_over(way: Way) -> None:
    way.ingest.close()
    way.read(message("a"))
    assert way.refused() == [("a", 10008)]
    way.ingest.configure(IngestSettings(100))
    way.read(message("b"))
    assert way.refused() == [("b", 10008)]
    assert way.partition.values() == []


async def test_nothing_is_stored_at_once_while_there_is_no_room(way: Way) -> None:
    way.room.refusing = True
    way.read(message("a"))
    (refused,) = way.refused()
    assert refused[0] == "a"
    assert way.partition.values() == []
