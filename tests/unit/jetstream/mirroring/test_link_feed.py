"""A feed over a link, of which a test is the other side."""

import asyncio
import json
from collections.abc import Callable, Sequence

import pytest

from streamlog.jetstream.mirroring import origin_feeds
from streamlog.jetstream.mirroring.origin_feeds import LinkFeed
from streamlog.jetstream.mirroring.origin_links import Heard
from streamlog.jetstream.mirroring.origin_reader import OriginMessage
from streamlog.metadata.stream.stream_origin import StreamOrigin
from tests.local_node import until

CREATED = "2026-01-01T00:00:00Z"


def listened(reply: bytes) -> str:
    """The subject, with its wildcard, that an answer to this one is heard by."""
    return reply.decode().rpartition(".")[0] + ".*"


class Origin:
    """Answers, and delivers what a test says."""

    def __init__(self) -> None:
        self.is_open = True
        self.heard: dict[str, Heard] = {}
        self.starts: list[int] = []
        self.answered: list[bytes] = []
        self.blocks: list[bytes] = []
        self.resets: list[bytes] = []
        self.reply = b""
        """Of the last one."""
        self.delivered = 0

    def listen(self, subject: str, heard: Heard) -> Callable[[], None]:
        self.heard[subject] = heard
        return lambda: self.heard.pop(subject, None) and None

    def publish(
        self, subject: bytes, payload: bytes, reply: bytes = b"", block: bytes = b""
    ) -> None:
        if not reply:
            self.answered.append(subject)
            self.blocks.append(block)
            return
        if b".INFO." in subject:
            self.heard[listened(reply)](reply, b"", b"", json.dumps({"created": CREATED}).encode())
            return
        if not payload:
            self.resets.append(subject)
            self.reply = reply
            return
        config = json.loads(payload)["config"]
        self.starts.append(config.get("opt_start_seq", 1))
        self.delivered = 0
        self.heard[listened(reply)](reply, b"", b"", b'{"num_pending": 0}')

    def answer_reset(self, **fields: object) -> None:
        self.heard[listened(self.reply)](self.reply, b"", b"", json.dumps(fields).encode())

    async def run(self) -> None: ...

    def say(self, reply: bytes, block: bytes = b"", payload: bytes = b"") -> None:
        for subject, heard in list(self.heard.items()):
            if ".answer." not in subject:
                heard(b"o.x", reply, block, payload)

    def deliver(self, sequence: int, payload: bytes = b"") -> None:
        self.delivered += 1
        self.say(b"$JS.ACK.O.c.1.%d.%d.0.0" % (sequence, self.delivered), payload=payload)


class Store:
    """Holds messages back until a test lets them be stored."""

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.may = asyncio.Event()
        self.may.set()
        self.is_committed = asyncio.Event()
        self.is_committed.set()

    async def store(self, messages: Sequence[OriginMessage]) -> None:
        await self.may.wait()
        self.sequences += [it.sequence for it in messages]

    async def committed(self) -> None:
        await self.is_committed.wait()


EPHEMERAL = StreamOrigin("O", api="$JS.hub.API")


def feed_of(
    origin: Origin,
    store: Store,
    position: int = 0,
    *,
    origin_read: StreamOrigin = EPHEMERAL,
    is_mirror: bool = False,
) -> LinkFeed:
    return LinkFeed(
        origin_read,
        origin,
        index_name="O > >",
        position=position,
        inbox="_INBOX.m",
        store=store.store,
        committed=store.committed,
        is_mirror=is_mirror,
    )


async def test_flow_control_is_answered_when_what_came_before_is_committed() -> None:
    origin, store = Origin(), Store()
    running = asyncio.create_task(feed_of(origin, store).run())
    await until(lambda: origin.starts == [1])
    store.is_committed.clear()
    origin.deliver(1)
    origin.say(b"$JS.FC.1", b"NATS/1.0 100 FlowControl Request\r\n\r\n")
    origin.deliver(2)
    await until(lambda: store.sequences == [1])
    await asyncio.sleep(0.05)
    assert origin.answered == []
    store.is_committed.set()
    await until(lambda: origin.answered == [b"$JS.FC.1"])
    await until(lambda: store.sequences == [1, 2])
    running.cancel()
    await asyncio.wait([running])
    assert origin.heard == {}, "it listens no more"


async def test_durable_consumer_is_reset_and_acknowledged_when_that_is_committed() -> None:
    origin, store = Origin(), Store()
    consumer = StreamOrigin("O", api="$JS.hub.API", consumer="c", consumer_deliver="d")
    feed = feed_of(origin, store, position=2, origin_read=consumer)
    running = asyncio.create_task(feed.run())
    await until(lambda: origin.resets == [b"$JS.hub.API.CONSUMER.RESET.O.c"])
    assert "d" not in origin.heard
    policy = {"ack_policy": "flow_control"}
    origin.answer_reset(config=policy, delivered={"stream_seq": 1}, created=CREATED)
    assert "d" in origin.heard
    store.is_committed.clear()
    origin.deliver(2)
    origin.deliver(3)
    origin.say(b"$JS.FC.O.other.1", b"NATS/1.0 100 FlowControl Request\r\n\r\n")
    origin.say(b"$JS.API.STREAM.DELETE.O", b"NATS/1.0 100 FlowControl Request\r\n\r\n")
    origin.say(b"$JS.FC.O.c.1", b"NATS/1.0 100 FlowControl Request\r\n\r\n")
    await until(lambda: store.sequences == [3])
    await asyncio.sleep(0.05)
    assert origin.answered == []
    store.is_committed.set()
    await until(lambda: origin.answered == [b"$JS.FC.O.c.1"])
    assert b"Nats-Last-Consumer: 2\r\nNats-Last-Stream: 3\r\n" in origin.blocks[0]
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize(("is_mirror", "err_code"), [(True, 10214), (False, 10217)])
async def test_durable_consumer_must_acknowledge_by_flow_control(
    is_mirror: bool, err_code: int
) -> None:
    origin, store = Origin(), Store()
    consumer = StreamOrigin("O", api="$JS.hub.API", consumer="c", consumer_deliver="d")
    feed = feed_of(origin, store, origin_read=consumer, is_mirror=is_mirror)
    running = asyncio.create_task(feed.run())
    await until(lambda: len(origin.resets) == 1)
    origin.answer_reset(config={"ack_policy": "explicit"})
    error = feed.state().error
    assert error is not None and error["err_code"] == err_code
    await until(lambda: len(origin.resets) == 2)
    running.cancel()
    await asyncio.wait([running])


async def test_origin_that_heeds_no_flow_control_is_given_up_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(origin_feeds, "QUEUED_BYTES_MAX", 1_000)
    origin, store = Origin(), Store()
    feed = feed_of(origin, store)
    running = asyncio.create_task(feed.run())
    await until(lambda: origin.starts == [1])
    store.may.clear()
    for sequence in range(1, 100):
        origin.deliver(sequence, bytes(100))
    assert origin.heard == {}
    assert "flow control" in str(feed.state().error)
    store.may.set()
    await until(lambda: len(origin.starts) == 2)
    held = origin.starts[1] - 1
    assert store.sequences == list(range(1, held + 1))
    assert held < 20
    for sequence in range(held + 1, held + 3):
        origin.deliver(sequence)
    await until(lambda: store.sequences == list(range(1, held + 3)))
    running.cancel()
    await asyncio.wait([running])


async def test_closed_link_is_waited_for() -> None:
    origin, store = Origin(), Store()
    origin.is_open = False
    feed = feed_of(origin, store, position=7)
    running = asyncio.create_task(feed.run())
    await asyncio.sleep(0.05)
    assert origin.starts == []
    assert "not connected" in str(feed.state().error)
    origin.is_open = True
    await until(lambda: origin.starts == [8])
    running.cancel()
    await asyncio.wait([running])
