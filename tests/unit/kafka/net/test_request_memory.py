"""The room for requests that are not answered yet: it counts from the first byte."""

from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.authn import plain
from streamlog.kafka.net.request_memory import MemoryShare, RequestMemory, RequestMemoryFull
from streamlog.wire import registry
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient, at, wanted
from tests.unit.kafka.auth.test_login import sasl, scram

MIB = 1_048_576
ALL_TOPICS: dict[str, Any] = {"topics": None, "allow_auto_topic_creation": False}
NEIGHBOUR = "127.0.0.2"


def begun(size: int, sent: int) -> bytes:
    """The beginning of a frame."""
    return size.to_bytes(4, "big") + bytes(sent - 4)


def taken(node: KafkaNode) -> int:
    return node.listener._room.taken_bytes


async def test_it_counts_from_the_first_byte() -> None:
    async with KafkaNode() as node, AsyncExitStack() as stack:
        for number in range(20):
            client = await stack.enter_async_context(RawClient(node.port))
            client.write(begun(60_000, 1 + 4 + number))
        await until(lambda: taken(node) == sum(5 + number for number in range(20)))
        await stack.aclose()
        await until(lambda: taken(node) == 0)


async def test_a_request_counts_while_it_is_answered() -> None:
    """A fetch may wait for long."""
    async with KafkaNode() as node, RawClient(node.port) as client:
        partition = await node.add_stream("flights")
        client.send_fetch(wanted(at(0), max_wait_ms=60_000, rack_id="r" * 30_000))
        await until(lambda: taken(node) > 30_000)
        partition.append([b"x"])
        await until(lambda: taken(node) == 0)


async def test_small_parts_fill_it_and_the_largest_holder_makes_room() -> None:
    """An address that holds nearly all of it does not keep others out."""
    async with KafkaNode(queued_request_bytes_max=MIB) as node, AsyncExitStack() as stack:
        for _ in range(16):
            client = await stack.enter_async_context(RawClient(node.port))
            client.write(begun(61_000, 60_000))
        await until(lambda: taken(node) == 16 * 60_000)
        async with RawClient(node.port, own_address=NEIGHBOUR) as other:
            other.write(begun(501_000, 500_000))
            await until(lambda: node.listener._room.held_by(NEIGHBOUR) == 500_000)
            assert taken(node) <= MIB
            closed = node.metric("streamlog_connections_closed_total", reason="memory")
            assert closed == 7, "as many as make room, and no more"


async def test_a_principal_has_a_share(tmp_path: Path) -> None:
    """Whoever has no rights at all may log in and send; it takes nothing from others."""
    settings = sasl(tmp_path, "PLAIN")
    size = 300_000
    held = 4 + size  # with the last ten bytes, which are awaited
    async with (
        KafkaNode(
            sasl=settings, queued_request_bytes_max=4 * MIB, queued_request_bytes_per_client_max=MIB
        ) as node,
        AsyncExitStack() as stack,
    ):
        for user in ("nobody", "reader"):
            node.metadata.add_user(user, "secret")

        async def connect(user: str) -> RawClient:
            client = await stack.enter_async_context(RawClient(node.port))
            await client.ask(registry.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
            message = plain.encode_message(user, "secret")
            await client.ask(registry.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
            return client

        for _ in range(3):
            (await connect("nobody")).write(begun(size, size - 10))
        room = node.listener._room
        await until(lambda: room.held_by("User:nobody") == 3 * held)
        one_too_many = await connect("nobody")
        one_too_many.write(begun(size, size - 10))
        assert await one_too_many.closed()
        (await connect("reader")).write(begun(size, size - 10))
        await until(lambda: room.held_by("User:reader") == held)
        assert room.held_by("User:nobody") == 3 * held
        assert room.held_by("127.0.0.1") == 0


def ended(_: Exception) -> None:
    raise AssertionError("nobody asked for room")


def test_a_client_that_holds_most_does_not_push_others_out() -> None:
    room = RequestMemory(100)
    small, large = room.seat("small", ended), room.seat("large", ended)
    small.hold(40)
    large.hold(60)
    with pytest.raises(RequestMemoryFull, match="take 100 bytes already, allowed are 100"):
        large.hold(61)
    assert (small.held, large.held, room.taken_bytes) == (40, 60, 100)


class World:
    """Seats of some clients, and what they should hold."""

    def __init__(self) -> None:
        self.room = RequestMemory(100, 60)
        self.seats: list[MemoryShare] = []
        self.evicted: list[str] = []
        for number in range(9):
            client = f"client {number % 3}"
            self.seats.append(self.room.seat(client, self.end(number)))

    def end(self, number: int) -> Callable[[Exception], None]:
        return lambda _: self.evicted.append(self.seats[number].client)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 70), st.booleans())))
def test_the_sums_are_right(steps: list[tuple[int, int, bool]]) -> None:
    world = World()
    for place, count, moves in steps:
        seat = world.seats[place]
        before = Counter[str]()
        for it in world.seats:
            before[it.client] += it.held
        evicted = len(world.evicted)
        try:
            if moves:
                seat.move(f"client {count % 4}")
            else:
                seat.hold(count)
        except RequestMemoryFull:
            seat.leave()
        for client in world.evicted[evicted:]:
            assert before[client]
        held = Counter[str]()
        for it in world.seats:
            held[it.client] += it.held
        assert room_of(world) == {client: total for client, total in held.items() if total}
        assert world.room.taken_bytes == held.total() <= 100
        assert max(held.values()) <= 60


def room_of(world: World) -> dict[str, int]:
    return {f"client {n}": held for n in range(4) if (held := world.room.held_by(f"client {n}"))}


async def test_a_request_counts_with_what_it_becomes() -> None:
    """Twelve bytes of a partition become hundreds, and a fetch may wait for long."""
    async with KafkaNode() as node, RawClient(node.port) as client:
        partition = await node.add_stream("flights")
        client.send_fetch(wanted(*[at(0)] * 10_000, max_wait_ms=60_000))
        await until(lambda: taken(node) > 10_000 * 1_000)
        partition.append([b"x"])
        await until(lambda: taken(node) == 0)


async def test_who_asks_for_too_much_at_once_is_cut_off_and_others_are_not() -> None:
    """Few bytes that would become many are refused before they do."""
    settings: dict[str, Any] = {
        "queued_request_bytes_max": 8 * MIB,
        "queued_request_bytes_per_client_max": 4 * MIB,
    }
    async with KafkaNode(**settings) as node, RawClient(node.port) as client:
        await node.add_stream("flights")
        for key, version, topics in (
            (registry.METADATA, 12, [{"name": "t"}] * 20_000),
            (registry.LIST_OFFSETS, 7, [{"name": "t", "partitions": []}] * 20_000),
        ):
            async with RawClient(node.port) as greedy:
                greedy.send(key, version, {**ALL_TOPICS, "topics": topics})
                assert await greedy.closed()
            assert (await client.ask(registry.METADATA, 5, ALL_TOPICS))["topics"]
        async with RawClient(node.port) as greedy:
            greedy.send_fetch(wanted(*[at(0)] * 20_000, max_wait_ms=60_000))
            assert await greedy.closed()
        assert node.metric("streamlog_connections_closed_total", reason="memory") == 3
        assert taken(node) == 0


async def test_nodes_ask_for_all_that_there_is(tmp_path: Path) -> None:
    """They are one principal, whose share would be small for a cluster of many partitions."""
    passwords = tmp_path / "node-password"
    passwords.write_text("secret\n")
    settings = sasl(tmp_path, node_user="node", node_password_file=passwords)
    async with KafkaNode(sasl=settings, queued_request_bytes_per_client_max=4 * MIB) as node:
        node.metadata.add_user("alice", "secret")
        for user, is_answered in (("node", True), ("alice", False)):
            async with RawClient(node.port) as client:
                assert (await scram(client, user, "secret"))["error_code"] == 0
                sent = client.send_fetch(wanted(*[at(0)] * 20_000, topic="nowhere"))
                if is_answered:
                    assert (await client.fetched(sent)).partitions
                else:
                    assert await client.closed()
