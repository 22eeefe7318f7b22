"""Publishers whose messages change between ways into a cluster: ports of its nodes, and nats-servers.

Beside the kinds of ``tests.history`` there are, by the first letter of their names:

``n…``  without an id, and never again: what was not acknowledged may be there or not, but once at most
``f…``  a flight of messages on one connection, each once: those that are stored are in its order
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import APIError

from tests.history import (
    ACK_TIMEOUT_S,
    Acked,
    Lane,
    LaneHistory,
    Publishers,
    Violation,
    check,
    payload,
)
from tests.integration.campaign import DOMAIN, Acks, all_is_well, create_streams
from tests.integration.watching_consumer import WatchingConsumer
from tools.nodes.cluster import Cluster
from tools.nodes.replica_log import ReplicaLog, Stored

FLIGHT: Final = 8
OWN_KINDS: Final = {"n": 1, "f": 1}

Ways = Mapping[str, JetStreamContext]


class MovingPublishers(Publishers):
    """Each try of a message takes another way, by chance; a flight has one way."""

    def __init__(self, ways: Ways, lanes: Sequence[Lane], **settings: Any) -> None:
        super().__init__(next(iter(ways.values())), lanes, **settings)
        self._ways = ways
        self._kinds |= OWN_KINDS
        self._chosen = random.Random(len(ways))
        self.acked_by: dict[str, int] = dict.fromkeys(ways, 0)
        """How many, by way."""

    async def _publish(self, lane: Lane, name: str) -> None:
        if name[0] not in OWN_KINDS:
            await super()._publish(lane, name)
            return
        number = 0
        while not self._stopping:
            size = FLIGHT if name.startswith("f") else 1
            way = self._way()
            await asyncio.gather(
                *(self._try(lane, f"{name}:{number + place}", way) for place in range(size))
            )
            number += size
            if self._pause_s:
                await asyncio.sleep(self._pause_s)

    async def _once(self, lane: Lane, identity: str) -> bool:
        return await self._try(lane, identity, self._way())

    def _way(self) -> str:
        return self._chosen.choice(list(self._ways))

    async def _try(self, lane: Lane, identity: str, way: str) -> bool:
        history = self.history[lane]
        body = history.sent.setdefault(identity, payload(identity))
        headers = None if identity.startswith("n") else {"Nats-Msg-Id": identity}
        try:
            ack = await self._ways[way].publish(
                lane.subject, body, timeout=ACK_TIMEOUT_S, headers=headers
            )
        except (NatsError, APIError) as error:
            history.refused[f"{way}: {type(error).__name__}"] += 1
            await asyncio.sleep(0.02)
            return False
        assert ack.stream == lane.stream
        self.acked_by[way] += 1
        known = history.acked.setdefault(identity, Acked(ack.seq, time.monotonic()))
        if known.seq != ack.seq:
            raise Violation(f"{identity} is acknowledged as {known.seq} and as {ack.seq}")
        return True


class StayingClient(Client):
    """Goes to no other server than the one that it was given, whatever that one names. Closes the
    connection of an attempt that failed, which nats-py leaves to the garbage collector.
    """

    async def _select_next_server(self) -> None:
        self._let_go()
        await super()._select_next_server()

    async def close(self) -> None:
        await super().close()
        self._let_go()

    def _let_go(self) -> None:
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        known = {key: value for key, value in info.items() if key != "connect_urls"}
        await super()._process_info(known, initial_connection)


@asynccontextmanager
async def ways_of(urls: Mapping[str, str]) -> AsyncIterator[Ways]:
    """A client for each URL, which never gives up."""

    async def ignore(_: Exception) -> None:
        """That servers go away is what this is about."""

    options: dict[str, Any] = {
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.05,
        "error_cb": ignore,
    }
    async with AsyncExitStack() as stack:
        made = {}
        for name, url in urls.items():
            client = StayingClient()
            await client.connect(url, **options)
            stack.push_async_callback(client.close)
            made[name] = client.jetstream(domain=DOMAIN)
        yield made


async def campaign_of_moving(
    cluster: Cluster,
    urls: Mapping[str, str],
    lanes: Sequence[Lane],
    faults: Callable[[], None],
    *,
    acks: Acks | None = None,
    settings: Mapping[str, str] | None = None,
    **publishers: Any,
) -> dict[str, int]:
    """As ``campaign``; how many acks came by each way."""
    async with ways_of(urls) as ways:
        context = next(iter(ways.values()))
        await create_streams(context._nc, lanes, **settings or {})
        await asyncio.to_thread(cluster.wait_settled, lanes)
        with WatchingConsumer(cluster.servers, lanes) as consumer:
            moving = MovingPublishers(ways, lanes, **publishers)
            async with moving as histories:
                await all_is_well(histories)
                if acks is not None:
                    acks.histories = histories
                await asyncio.to_thread(faults)
                await all_is_well(histories)
            await asyncio.to_thread(verify_moving, cluster, histories, consumer)
        return moving.acked_by


def verify_moving(
    cluster: Cluster, histories: Mapping[Lane, LaneHistory], consumer: WatchingConsumer
) -> None:
    """Of ``campaign.verify``, and the order of flights."""
    cluster.wait_settled(list(histories))
    for lane, history in histories.items():
        end = cluster.wait_replicated(lane)
        consumer.wait_for(lane, end)
        replicas = [_named(log) for log in cluster.replicas(lane)]
        seen = {offset: _named_record(record) for offset, record in consumer.seen[lane].items()}
        check(history, replicas, end, seen)
        if problems := list(_flights_out_of_order(replicas[0].records)):
            raise Violation("\n".join(problems))
        print(
            f"{lane.stream}/{lane.partition}: {len(history.acked)} acked, {end} stored, longest"
            f" gap {history.longest_gap_s():.2f} s, refused {dict(sorted(history.refused.items()))}"
        )
    assert consumer.problems == []


def _named(log: ReplicaLog) -> ReplicaLog:
    return log._replace(records=[_named_record(record) for record in log.records])


def _named_record(record: Stored) -> Stored:
    """A message without an id is known by the first word of its content."""
    identity = record.identity or record.value.split(b" ")[0].decode()
    return record._replace(identity=identity)


def _flights_out_of_order(records: Sequence[Stored]) -> Iterator[str]:
    last: dict[tuple[str, int], int] = {}
    for record in records:
        name, _, number = record.identity.partition(":")
        if name.startswith("f"):
            flight = name, int(number) // FLIGHT
            if int(number) < last.get(flight, -1):
                yield f"{record.offset} is {record.identity}, after {last[flight]}"
            last[flight] = int(number)
