"""What a partition's leader asks of a transaction's coordinator, wherever that is."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from streamlog.config import TransactionsSection
from streamlog.control.leaders.node_requests import NodeAnswer
from streamlog.control.leaders.transaction_coordinators import LocalTransactions, TransactionRouter
from streamlog.errors import NodeUnreachable, NoOpenTransaction, TransactionNotFound
from streamlog.metadata.commands import Granted
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId, TopicPartition
from streamlog.transactions.requests import AddRequest, InitRequest
from streamlog.transactions.transaction import ProducerEpoch
from streamlog.wire.error_codes import ErrorCode
from tests.fake_metadata import CLUSTER_ID
from tests.fake_partition import NODE
from tests.kafka_node import KafkaNode, until

ID = "transfers"
PLACES = [TopicPartition("t", 0), TopicPartition("t", 3)]
NONE = ErrorCode.none


class Wire:
    """``NodeRequests`` whose other node is this one, with the coordinator."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}
        self.error: Exception | None = None

    def register(self, name: str, handler: Any) -> None:
        self.handlers[name] = handler

    async def ask(self, node_id: int, name: str, fields: Any, *, timeout_s: float) -> NodeAnswer:
        if self.error is not None:
            raise self.error
        answer: NodeAnswer = await self.handlers[name](fields)
        return NodeAnswer(json.loads(json.dumps(answer.fields)))


class Leaders:
    """``LeaderRouter`` that asks over the wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def at_leader(self, tp: Any, verb: str, fields: Any, *, decode: Any, **_: Any) -> Any:
        return decode(await self._wire.ask(1, verb, json.loads(json.dumps(fields)), timeout_s=1))


class World:
    def __init__(self, node: KafkaNode) -> None:
        self.node = node
        self.wire = cast("Any", Wire())
        here = LocalTransactions(node.transactions)
        here.register(self.wire)
        leaders = cast("Any", Leaders(self.wire))
        self.local = TransactionRouter(
            NODE, here, self.wire, leaders, image=lambda: node.metadata.image
        )
        elsewhere = LocalTransactions(None)
        self.remote = TransactionRouter(
            NodeId(99), elsewhere, self.wire, leaders, image=lambda: node.metadata.image
        )

    async def producer(self) -> int:
        reply = self.node.transactions.call(
            ID,
            lambda coordinator, token, now: coordinator.init_producer(
                InitRequest(ID, 60_000), token, now
            ),
        )
        assert not isinstance(reply, ErrorCode)
        given = await reply.given(5)
        return int(given.producer.producer_id)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with KafkaNode(transactions=TransactionsSection(state_partitions=2)) as node:
        tasks = [asyncio.create_task(it.run()) for it in (node.transactions, node.markers)]
        node.metadata.result = Granted(0, {"first": 100, "end": 1_000})
        await node.transactions.find(ID)
        node.transactions.apply(MetadataImage(CLUSTER_ID), node.metadata.image)
        await until(lambda: not node.transactions.statistics(0).loading)
        yield World(node)
        await node.transactions.stop()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.mark.parametrize("where", ["local", "remote"])
async def test_partitions_are_added_and_verified(world: World, where: str) -> None:
    router: TransactionRouter = getattr(world, where)
    producer_id = await world.producer()
    assert router.node_of(ID) is not None
    verified = await router.add(ID, producer_id, 0, PLACES[:1], verify_only=True)
    assert verified == {PLACES[0]: ErrorCode.transaction_abortable}
    added = await router.add(ID, producer_id, 0, PLACES, verify_only=False)
    assert added == dict.fromkeys(PLACES, NONE)
    assert await router.add(ID, producer_id, 0, PLACES, verify_only=True) == added
    stale = await router.add(ID, producer_id, -1, PLACES, verify_only=False)
    assert stale == dict.fromkeys(PLACES, ErrorCode.invalid_producer_epoch)


async def test_a_coordinator_that_cannot_be_asked(world: World) -> None:
    unavailable = dict.fromkeys(PLACES, ErrorCode.coordinator_not_available)
    world.wire.error = NodeUnreachable("it is down")
    assert await world.remote.add(ID, 100, 0, PLACES, verify_only=False) == unavailable
    request = AddRequest(ID, ProducerEpoch(1, 0), frozenset({("t", 0)}), 2)
    none = await LocalTransactions(None).add(request, verify_only=True)
    assert none == {("t", 0): ErrorCode.not_coordinator}


async def test_there_is_no_coordinator_yet() -> None:
    async with KafkaNode() as node:
        found = await World(node).local.add(ID, 100, 0, PLACES, verify_only=False)
    assert found == dict.fromkeys(PLACES, ErrorCode.coordinator_not_available)


@pytest.mark.parametrize("where", ["local", "remote"])
async def test_transactions_are_listed_described_and_aborted(world: World, where: str) -> None:
    router: TransactionRouter = getattr(world, where)
    producer_id = await world.producer()
    with pytest.raises(NoOpenTransaction):
        await router.abort(ID)
    await router.add(ID, producer_id, 0, PLACES, verify_only=False)
    found, missing = await router.all()
    assert ([it.transactional_id for it in found], missing) == ([ID], [])
    known = await router.known(ID)
    assert known == found[0].transaction
    assert (known.state.shown, known.partitions) == ("Ongoing", {("t", 0), ("t", 3)})
    await router.abort(ID)
    assert (await router.known(ID)).state.shown in ("PrepareAbort", "CompleteAbort")
    stale = await router.add(ID, producer_id, 0, PLACES, verify_only=False)
    assert stale == dict.fromkeys(PLACES, ErrorCode.invalid_producer_epoch)
    for ask in (router.known, router.abort):
        with pytest.raises(TransactionNotFound):
            await ask("another")


async def test_ids_of_a_node_that_does_not_answer_are_missing(world: World) -> None:
    world.wire.error = NodeUnreachable("it is down")
    assert await world.remote.all() == ([], [NODE])
