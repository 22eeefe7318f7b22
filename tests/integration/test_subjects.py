"""Lookups and expectations by subject, with stock nats-py."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, PubAck, StreamConfig
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from streamlog.ingest.admission import subject_sequences
from tests.local_node import LocalNode, until
from tools.nodes.server_process import NatsServer

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_OF = "Nats-Expected-Last-Subject-Sequence-Subject"


@pytest.fixture
def js(node: LocalNode, nc: Client) -> JetStreamContext:
    return nc.jetstream(domain="streamlog")


async def error_of(publishing: Any) -> tuple[int | None, int | None, str | None]:
    with pytest.raises(APIError) as caught:
        await publishing
    return caught.value.code, caught.value.err_code, caught.value.description


def expecting(sequence: int, of: str = "") -> dict[str, str]:
    return {EXPECTED: str(sequence), **({EXPECTED_OF: of} if of else {})}


async def test_expectations_of_subjects(js: JetStreamContext) -> None:
    await js.add_stream(name="orders", subjects=["orders.>"])
    assert (await js.publish("orders.a", headers=expecting(0))).seq == 1
    assert (await js.publish("orders.b", headers=expecting(0))).seq == 2
    assert (await js.publish("orders.a", headers=expecting(1))).seq == 3
    wrong = await error_of(js.publish("orders.a", headers=expecting(1)))
    assert wrong == (400, 10071, "wrong last sequence: 3")
    wrong = await error_of(js.publish("orders.c", headers=expecting(2)))
    assert wrong == (400, 10071, "wrong last sequence: 0")
    assert (await js.publish("orders.c", headers=expecting(2, "orders.b"))).seq == 4
    wrong = await error_of(js.publish("orders.c", headers=expecting(3, "orders.*")))
    assert wrong == (400, 10071, "wrong last sequence: 4")
    assert (await js.publish("orders.c", headers=expecting(4, "orders.>"))).seq == 5
    missing = await error_of(js.publish("orders.c", headers={EXPECTED_OF: "orders.a"}))
    assert missing == (
        400, 10193, "missing sequence for expected last sequence per subject",
    )  # fmt: skip
    assert (await js.publish("orders.d")).seq == 6


async def test_one_of_many_that_race_wins(js: JetStreamContext) -> None:
    """However many of them one read has."""
    await js.add_stream(name="orders", subjects=["orders.>"])

    async def try_it(number: int) -> int | None:
        try:
            return (await js.publish("orders.a", b"%d" % number, headers=expecting(last))).seq
        except APIError as error:
            assert error.err_code == 10071
            return None

    last = 0
    for _ in range(20):
        told = await asyncio.gather(*(try_it(number) for number in range(50)))
        won = [sequence for sequence in told if sequence]
        assert len(won) == 1
        last = won[0]
    assert (await js.get_last_msg("orders", "orders.a")).seq == last == 20


async def test_a_restart_forgets_no_subject(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader listens when it knows them, since messages expected them before."""
    monkeypatch.setattr(subject_sequences, "READ_BYTES_MAX", 10_000)
    client = await nats.connect(nats_server.url)
    js = client.jetstream(domain="streamlog")
    async with LocalNode(tmp_path / "data", nats_server.url) as node:
        partition = await node.create("orders", subjects=("orders.>",))
        for number in range(100):
            await js.publish(f"orders.{number}", bytes(1000), headers=expecting(0))
        assert partition.subjects.is_followed
    async with LocalNode(tmp_path / "data", nats_server.url) as node:
        partition = node.partition("orders")
        assert partition.subjects.is_followed and partition.subjects.size_bytes
        wrong = await error_of(js.publish("orders.7", headers=expecting(0)))
        assert wrong == (400, 10071, "wrong last sequence: 8")
        assert (await js.publish("orders.7", headers=expecting(8))).seq == 101
    await client.close()


async def test_the_first_that_expects_something_of_a_large_log_comes_again(
    node: LocalNode, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject_sequences, "READ_BYTES_MAX", 10_000)
    partition = await node.create("orders", subjects=("orders.>",))
    for number in range(100):
        await js.publish(f"orders.{number}", bytes(1000))
    with pytest.raises(ServiceUnavailableError) as caught:
        await js.publish("orders.7", headers=expecting(8))
    assert (caught.value.err_code, caught.value.description) == (
        10163, "expected last sequence per subject temporarily unavailable",
    )  # fmt: skip
    await until(lambda: partition.subjects.size_bytes > 0)
    assert (await js.publish("orders.7", headers=expecting(8))).seq == 101


async def test_each_partition_has_sequences_of_its_own(
    node: LocalNode, js: JetStreamContext
) -> None:
    await node.create("parts", subjects=("parts",), partitions=2)
    for subject in ("parts", "parts", "parts.1"):
        await js.publish(subject)
    assert (await js.publish("parts.1", headers=expecting(1))).seq == 2
    assert (await js.publish("parts", headers=expecting(2))).seq == 3
    assert (await js.publish("parts", headers=expecting(0, "parts.1"))).seq == 4


@pytest.mark.parametrize("direct", [False, True])
async def test_lookups(js: JetStreamContext, direct: bool) -> None:
    await js.add_stream(name="orders", subjects=["orders.>"], allow_direct=True)
    for number in range(30):
        await js.publish(f"orders.{number % 10}.x", b"%d" % number)
    found = await js.get_last_msg("orders", "orders.3.x", direct=direct)
    assert (found.subject, found.seq, found.data) == ("orders.3.x", 24, b"23")
    assert (await js.get_last_msg("orders", "orders.*.x", direct=direct)).seq == 30
    following = await js.get_msg("orders", 5, subject="orders.3.*", next=True, direct=direct)
    assert following.seq == 14
    assert await js.purge_stream("orders", seq=25)
    with pytest.raises(NotFoundError):
        await js.get_last_msg("orders", "orders.3.x", direct=direct)
    assert (await js.get_last_msg("orders", "orders.9.x", direct=direct)).seq == 30


async def subject_count(nc: Client, stream: str) -> int:
    reply = json.loads((await nc.request(f"$JS.streamlog.API.STREAM.INFO.{stream}")).data)
    return int(reply["state"]["num_subjects"])


async def test_info_tells_the_subjects(node: LocalNode, nc: Client, js: JetStreamContext) -> None:
    await js.add_stream(name="orders", subjects=["orders.>"])
    assert not (await js.stream_info("orders")).state.subjects
    for number in range(30):
        await js.publish(f"orders.{number % 10}.x")
    info = await js.stream_info("orders")
    assert (await subject_count(nc, "orders"), info.state.subjects) == (10, None)
    info = await js.stream_info("orders", subjects_filter="orders.>")
    assert info.state.subjects == {f"orders.{number}.x": 3 for number in range(10)}
    info = await js.stream_info("orders", subjects_filter="orders.3.*")
    assert info.state.subjects == {"orders.3.x": 3}
    assert not (await js.stream_info("orders", subjects_filter="other")).state.subjects
    await js.purge_stream("orders", seq=25)
    info = await js.stream_info("orders", subjects_filter=">")
    assert info.state.subjects == {f"orders.{number}.x": 1 for number in range(4, 10)}
    assert await subject_count(nc, "orders") == 6
    await js.purge_stream("orders", subject="orders.7.x")
    assert await subject_count(nc, "orders") == 5
    await node.create("parts", subjects=("parts",), partitions=2)
    for subject in ("parts", "parts", "parts.1"):
        await js.publish(subject)
    info = await js.stream_info("parts", subjects_filter=">")
    assert info.state.subjects == {"parts": 2, "parts.1": 1}
    assert await subject_count(nc, "parts") == 2


async def test_discarding_what_is_new(js: JetStreamContext) -> None:
    config = StreamConfig(
        name="orders", subjects=["orders.>"], max_msgs=4, discard=DiscardPolicy.NEW,
        discard_new_per_subject=True, max_msgs_per_subject=2,
    )  # fmt: skip
    info = await js.add_stream(config)
    assert (info.config.discard, info.config.max_msgs_per_subject) == (DiscardPolicy.NEW, 2)
    assert info.config.discard_new_per_subject
    for subject in ("a", "a", "b"):
        await js.publish(f"orders.{subject}")
    full = (503, 10077, "maximum messages per subject exceeded")
    assert await error_of(js.publish("orders.a")) == full
    assert (await js.publish("orders.c")).seq == 4
    assert await error_of(js.publish("orders.d")) == (503, 10077, "maximum messages exceeded")
    await js.purge_stream("orders", subject="orders.a")
    assert (await js.publish("orders.a")).seq > 4
    config.max_msgs, config.max_bytes = -1, 1_000
    await js.update_stream(config)
    assert (await js.publish("orders.a", bytes(10))).seq
    bytes_full = (503, 10077, "maximum bytes exceeded")
    assert await error_of(js.publish("orders.d", bytes(1_000))) == bytes_full
    told = await asyncio.gather(
        *(js.publish(f"orders.e{number}", bytes(100)) for number in range(20)),
        return_exceptions=True,
    )
    assert 0 < sum(isinstance(each, PubAck) for each in told) < 10
    assert (await js.stream_info("orders")).state.bytes <= 1_000


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"discard_new_per_subject": True, "max_msgs_per_subject": 1},
            "discard new per subject requires discard new policy to be set",
        ),
        (
            {"discard_new_per_subject": True, "discard": DiscardPolicy.NEW},
            "discard new per subject requires max msgs per subject > 0",
        ),
    ],
)
async def test_limits_that_cannot_be(
    js: JetStreamContext, fields: dict[str, Any], text: str
) -> None:
    told = await error_of(js.add_stream(name="orders", **fields))
    assert told == (500, 10052, text)


async def test_lookups_from_a_time_on(nc: Client, js: JetStreamContext) -> None:
    await js.add_stream(name="orders", subjects=["orders.>"], allow_direct=True)
    await js.publish("orders.a")
    await asyncio.sleep(0.01)
    since = datetime.now(UTC).isoformat()
    await asyncio.sleep(0.01)  # a message's time is in whole milliseconds
    await js.publish("orders.b")
    await js.publish("orders.a")

    async def got(body: str) -> list[str | None]:
        plain = await nc.request("$JS.streamlog.API.STREAM.MSG.GET.orders", body.encode())
        direct = await nc.request("$JS.streamlog.API.DIRECT.GET.orders", body.encode())
        assert direct.headers is not None
        return [
            str(seq) if (seq := nats_json(plain.data)) else None,
            direct.headers.get("Nats-Sequence"),
        ]

    assert await got(f'{{"start_time":"{since}"}}') == ["2", "2"]
    assert await got(f'{{"start_time":"{since}","next_by_subj":"orders.a"}}') == ["3", "3"]
    assert await got('{"start_time":"2999-01-01T00:00:00Z"}') == [None, None]


def nats_json(data: bytes) -> int | None:
    reply = json.loads(data)
    return reply["message"]["seq"] if "message" in reply else None
