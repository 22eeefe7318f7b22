"""Messages in Liftbridge's envelope, from the frame to the Ack."""

import json
from typing import Any

import pytest

from streamlog.errors import StorageFailed
from streamlog.ingest.admission.publish_headers import AckPolicy
from streamlog.record.codec import iter_records
from tests import enveloped
from tests.enveloped import ALL, LEADER, NONE, read_ack
from tests.ingest_way import Way, message


@pytest.fixture
async def way() -> Way:
    return Way(message_bytes_max=1000, subjects=("orders",))


def envelope(policy: int = LEADER, inbox: bytes = b"acks", **parts: Any) -> bytes:
    body = enveloped.message(policy=policy, inbox=inbox, **({"value": b"v"} | parts))
    return enveloped.envelope(body, checked=True)


def acks(way: Way) -> list[dict[str, Any]]:
    answers = way.answered()
    assert {subject for subject, _ in answers} <= {"acks"}
    return [read_ack(payload) for _, payload in answers]


async def test_a_record_with_all_its_parts_and_its_ack(way: Way) -> None:
    data = envelope(ALL, key=b"k", headers={b"colour": b"\xff"}, correlation_id="ä".encode())
    way.read(message(), message("desk.7", data, Colour="blue"))
    assert way.answered() == []
    way.partition.commit()
    (reply, json_ack), (inbox, ack) = way.answered()
    assert (reply, json.loads(json_ack)) == ("desk.7", {"stream": "orders", "seq": 12})
    told = read_ack(ack)
    assert told.pop("committed_ns") > told.pop("received_ns") > 0
    assert (inbox, told) == (
        "acks",
        {
            "stream": b"orders",
            "partition_subject": b"orders",
            "subject": b"orders",
            "offset": 11,
            "inbox": b"acks",
            "correlation_id": "ä".encode(),
            "policy": ALL,
        },
    )
    _, record = (record for batch in way.partition.batches for record in iter_records(batch))
    assert (record.key, record.value) == (b"k", b"v")
    assert record.headers == (
        ("subject", b"orders"),
        ("reply", b"desk.7"),
        ("Colour", b"blue"),
        ("colour", b"\xff"),
    )
    assert way.count("publish_acked") == 1
    assert way.room.taken_bytes == 0


async def test_the_three_policies(way: Way) -> None:
    way.read(*(message(payload=envelope(policy)) for policy in (LEADER, ALL, NONE)))
    assert [ack["offset"] for ack in acks(way)] == [10]
    way.partition.commit()
    assert [ack["offset"] for ack in acks(way)] == [11]
    assert way.partition.values() == [b"v"] * 3


async def test_a_policy_without_an_inbox_weakens_no_reply(way: Way) -> None:
    way.read(message("desk", envelope(LEADER, inbox=b"")))
    assert way.answered() == []
    way.partition.commit()
    assert way.told() == [("desk", {"stream": "orders", "seq": 11})]


async def test_headers_in_it_ask_as_those_of_nats_do(way: Way) -> None:
    data = envelope(ALL, headers={b"Nats-Msg-Id": b"1"})
    way.read(message(payload=data), message(payload=data))
    way.read(message(payload=envelope(headers={b"Nats-Expected-Last-Sequence": b"3"})))
    assert [ack.get("error") for ack in acks(way)] == [2]
    way.partition.commit()
    assert [ack["offset"] for ack in acks(way)] == [10, 10]
    way.read(message("later", Nats_Msg_Id="1"))
    assert way.told() == [("later", {"stream": "orders", "seq": 11, "duplicate": True})]


async def test_refusals_have_liftbridges_codes(way: Way) -> None:
    way.read(message(payload=envelope(value=b"v" * 1000)))
    assert [ack["error"] for ack in acks(way)] == [3]
    way.partition.fault = StorageFailed("broken")
    way.read(message(payload=envelope(ALL)), message("a"), message(payload=envelope(NONE)))
    (subject, first), (inbox, second) = sorted(way.answered())
    assert (subject, json.loads(first)["error"]["err_code"]) == ("a", 10077)
    assert (inbox, read_ack(second)["error"]) == ("acks", 1)
    way.partition.fault = None
    way.read(message(payload=envelope(ALL, correlation_id=b"c")))
    way.partition.fail(StorageFailed("broken"))
    assert [(ack["error"], ack["correlation_id"]) for ack in acks(way)] == [(1, b"c")]
    assert way.room.taken_bytes == 0


async def test_leaders_acks_go_on_below_min_isr(way: Way) -> None:
    way.partition.below_min_isr = True
    way.read(
        message("plain"),
        message(payload=envelope(ALL, correlation_id=b"all")),
        message(payload=envelope(LEADER, correlation_id=b"leader")),
    )
    told: dict[str, list[Any]] = {"plain": [], "acks": []}
    for subject, answer in way.answered():
        told[subject].append(json.loads(answer) if subject == "plain" else read_ack(answer))
    assert [answer["error"]["err_code"] for answer in told["plain"]] == [10077]
    assert {ack["correlation_id"]: ack.get("error", 0) for ack in told["acks"]} == {
        b"all": 1,
        b"leader": 0,
    }
    assert way.partition.values() == [b"v"]


async def test_below_min_isr_the_policy_holds_for_what_was_gathered_before(way: Way) -> None:
    """The replicas went away between the frames and the append."""
    way.parser.feed(message("plain") + message(payload=envelope(LEADER, correlation_id=b"c")))
    way.partition.below_min_isr = True
    way.ingest.take()
    answers = dict(way.answered())
    assert json.loads(answers["plain"])["error"]["err_code"] == 10077
    assert (ack := read_ack(answers["acks"]))["correlation_id"] == b"c"
    assert ack["offset"] == 10
    assert way.partition.values() == [b"v"]


async def test_a_compacted_stream_needs_its_key() -> None:
    way = Way(message_bytes_max=1000, keyed=True)
    way.read(message(payload=envelope(ALL)), message(payload=envelope(ALL, key=b"k", value=b"")))
    assert [ack["error"] for ack in acks(way)] == [1]
    way.partition.commit()
    assert [ack["offset"] for ack in acks(way)] == [10]
    assert way.partition.values() == [None]


async def test_a_stream_that_does_not_answer() -> None:
    way = Way(message_bytes_max=1000, answering=False)
    way.read(message(payload=envelope(ALL)), message(payload=envelope(value=b"v" * 1000)))
    way.partition.commit()
    assert way.answered() == []
    assert way.partition.values() == [b"v"]


async def test_a_stream_that_acknowledges_at_the_append() -> None:
    way = Way(message_bytes_max=1000, default_ack=AckPolicy.APPENDED)
    way.read(message(payload=envelope(ALL)), message("a", envelope(LEADER, inbox=b"")))
    assert way.told() == [("a", {"stream": "orders", "seq": 12})]
    way.partition.commit()
    assert [ack["offset"] for ack in acks(way)] == [10]


@pytest.mark.parametrize("end", range(len(envelope()) + 1))
async def test_cut_anywhere_it_is_stored_as_it_came(way: Way, end: int) -> None:
    whole = envelope()
    way.read(message("a", whole[:end]))
    way.partition.commit()
    assert way.partition.values() == [b"v" if end == len(whole) else whole[:end]]
    assert way.answered()[0][0] in {"a", "acks"}


@pytest.mark.parametrize("at", [4, 5, *range(7, len(envelope()))])
async def test_with_a_byte_flipped_it_is_stored_as_it_came(way: Way, at: int) -> None:
    """But for the flags: without that of the checksum it is an envelope that has none."""
    data = bytearray(envelope())
    data[at] ^= 1
    way.read(message(payload=bytes(data)))
    assert way.partition.values() == [bytes(data)]
