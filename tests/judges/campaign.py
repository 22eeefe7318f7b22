"""Rounds of load and faults on a real cluster; the judge looks at the history of each."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Final, NamedTuple, TypeVar

import nats
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.kv import KeyValue

from benchmarks.network import Network, unavailable
from tests.history import Lane, Violation
from tests.integration.cuts import NODES
from tests.integration.namespaced import cluster_in
from tests.judges.faults import Faults
from tests.judges.history import History
from tests.judges.judging import NotLinearizable, Undecided, judge
from tests.judges.kafka_clients import CommitClients, KafkaLogClients
from tests.judges.nats_clients import (
    EXPECTED_STREAM,
    EXPECTED_SUBJECT,
    BucketClients,
    Client,
    ExpectingClients,
    LogClients,
    RecreatedLogClients,
)
from tests.judges.transaction_clients import PARTITIONS, TransactionClients
from tests.judges.transactions import Summary, check_transactions
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import Settings

DOMAIN: Final = "streamlog"
REPLICAS: Final = 3
API_TIMEOUT_S: Final = 5.0
PATIENCE_S: Final = 60.0
"""Until all is well again after the faults of a round."""
LATE_S: Final = 1.5
"""A leader that was replaced, and has not learnt of it yet, still answers reads while it has its lease: up to a
session."""
RETRY_S: Final = 0.1
THREADS_MAX: Final = 32
CALM_S: Final = 1.0
"""Before the faults and after them."""
QUICK: Final[Settings] = {
    "cluster": {
        "heartbeat_interval_ms": 200,
        "leader_lease_ms": 1_200,
        "session_timeout_ms": 1_500,
    },
    "groups": {"offsets_partitions": 3},
    "transactions": {"state_partitions": 3},
}


_T = TypeVar("_T")


class Round(NamedTuple):
    """What was done and judged."""

    number: int
    operations: int
    unknown: int
    faults: tuple[str, ...]
    verdict: str
    transactions: Summary

    def __str__(self) -> str:
        counts = f"{self.operations} operations, {self.unknown} of unknown outcome"
        return f"round {self.number}: {counts}; {', '.join(self.faults)}; {self.verdict}"


@contextmanager
def world(folder: Path) -> Iterator[tuple[Cluster, Network | None]]:
    """Three nodes, each in a network namespace of its own where that is allowed."""
    with ExitStack() as stack:
        if unavailable():
            yield stack.enter_context(Cluster(folder, settings=QUICK)), None
            return
        network = stack.enter_context(Network(NODES))
        yield stack.enter_context(cluster_in(network, folder, settings=QUICK)), network


async def run_rounds(
    folder: Path,
    kinds: Sequence[str],
    seed: int,
    wants_more: Callable[[int], bool],
    *,
    faults_of_a_round: int,
    done: Callable[[Round], None],
) -> None:
    """Raises NotLinearizable or Undecided, and leaves that round's history in the folder, which is new."""
    with world(folder / "cluster") as (cluster, network):
        faults = Faults(cluster, network, kinds, seed)
        client = await nats.connect(
            cluster.nats.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=_ignore
        )
        try:
            context = client.jetstream(domain=DOMAIN, timeout=API_TIMEOUT_S)
            number = 0
            while wants_more(number):
                number += 1
                path = folder / f"history-{number:03}.jsonl"
                one = await _Round(cluster, context, number, path, "recreate" in kinds).run(
                    faults, faults_of_a_round
                )
                done(one)
                path.unlink()
        finally:
            await client.close()


async def _ignore(_: Exception) -> None:
    pass


class _Round:
    """With streams, a bucket and groups of its own, so that each history begins with nothing."""

    def __init__(
        self,
        cluster: Cluster,
        context: JetStreamContext,
        number: int,
        path: Path,
        recreates: bool,
    ) -> None:
        self._cluster = cluster
        self._context = context
        self._number = number
        self._path = path
        self._recreates = recreates
        self._names = {kind: f"{kind}-{number}" for kind in ("log", "keyed", "chain", "again")}
        self._bucket = f"bucket-{number}"
        self._transfers = f"transfers-{number}"
        self._streams = [*self._names.values(), f"KV_{self._bucket}", self._transfers]

    async def run(self, faults: Faults, count: int) -> Round:
        bucket = await self._create()
        lanes = [Lane(name) for name in self._streams if name != self._names["again"]]
        lanes += [Lane(self._transfers, number) for number in range(1, PARTITIONS)]
        await asyncio.to_thread(self._cluster.wait_settled, lanes)
        with History(self._path) as history:
            struck, transactions = await self._work(history, bucket, lanes, faults, count)
        try:
            verdict = await asyncio.to_thread(judge, self._path, late_s=LATE_S)
            summary = await asyncio.to_thread(self._check, transactions)
        except (Violation, NotLinearizable, Undecided) as error:
            error.add_note(f"after these faults: {', '.join(struck)}")
            raise
        for name in self._streams:
            await _until_done(lambda name=name: self._delete(name))  # type: ignore[misc]
        return Round(
            self._number, history.count, history.unknown, struck, f"{verdict}; {summary}", summary
        )

    def _check(self, transactions: TransactionClients) -> Summary:
        """Their history stays in the folder if they broke a promise."""
        final = transactions.read_all(PATIENCE_S)
        path = self._path.with_name(f"transactions-{self._number:03}.jsonl")
        transactions.write(path, final)
        summary = check_transactions(transactions.history, final)
        path.unlink()
        return summary

    async def _create(self) -> KeyValue:
        for kind, name in self._names.items():
            subject = f"{name}.*" if kind == "keyed" else name
            config = StreamConfig(name=name, subjects=[subject], num_replicas=REPLICAS)
            await _until_done(lambda config=config: self._context.add_stream(config))  # type: ignore[misc]
        metadata = {"streamlog.partitions": str(PARTITIONS)}
        config = StreamConfig(name=self._transfers, num_replicas=REPLICAS, metadata=metadata)
        await _until_done(lambda: self._context.add_stream(config))
        return await _until_done(
            lambda: self._context.create_key_value(bucket=self._bucket, replicas=REPLICAS)
        )

    async def _delete(self, name: str) -> None:
        if name in {info.config.name for info in await self._context.streams_info()}:
            await self._context.delete_stream(name)

    async def _work(
        self,
        history: History,
        bucket: KeyValue,
        lanes: Sequence[Lane],
        faults: Faults,
        count: int,
    ) -> tuple[tuple[str, ...], TransactionClients]:
        context, names, servers = self._context, self._names, self._cluster.servers
        log = LogClients(context, history, names["log"])
        keyed = ExpectingClients(
            context, history, names["keyed"], f"{names['keyed']}.", EXPECTED_SUBJECT
        )
        chain = ExpectingClients(context, history, names["chain"], names["chain"], EXPECTED_STREAM)
        keys = BucketClients(bucket, history, self._bucket)
        again = RecreatedLogClients(context, history, names["again"])
        topic = KafkaLogClients(servers, history, names["log"])
        commits = CommitClients(servers, history, names["log"])
        clients = [*log.clients(), *keyed.clients(), *chain.clients(), *keys.clients()]
        if self._recreates:
            clients += again.clients()

        transactions = TransactionClients(servers, self._transfers)
        blocking = [*topic.clients(), *commits.clients(), *transactions.clients()]

        async with _Working(clients, blocking):
            await asyncio.sleep(CALM_S)
            struck = [await asyncio.to_thread(faults.strike, lanes) for _ in range(count)]
            await asyncio.to_thread(self._cluster.wait_settled, lanes, PATIENCE_S)
            await asyncio.sleep(CALM_S)

        await asyncio.to_thread(topic.read_to_end, PATIENCE_S)
        await asyncio.to_thread(commits.fetch_all, PATIENCE_S)
        client = history.client()
        for offset in range(log.end):
            await _until_answered(lambda offset=offset: log.read(client, offset))  # type: ignore[misc]
        for expecting in (keyed, chain):
            for subject in expecting.subjects():
                await _until_answered(lambda it=expecting, at=subject: it.read(client, at))  # type: ignore[misc]
        for key in keys.names():
            await _until_answered(lambda key=key: keys.get(client, key))  # type: ignore[misc]
        return tuple(struck), transactions


class _Working:
    """All clients, until the end of the block. Raises what one of them raised."""

    def __init__(
        self, clients: Sequence[Client], blocking: Sequence[Callable[[Event], None]]
    ) -> None:
        self._clients = clients
        self._blocking = blocking
        self._stop = Event()
        self._threads = ThreadPoolExecutor(THREADS_MAX)

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._work: list[asyncio.Future[None]] = [
            asyncio.ensure_future(client(self._stop)) for client in self._clients
        ]
        self._work += [
            loop.run_in_executor(self._threads, work, self._stop) for work in self._blocking
        ]

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        async with asyncio.timeout(PATIENCE_S):
            ended = await asyncio.gather(*self._work, return_exceptions=True)
        self._threads.shutdown(wait=False)
        for error in ended:
            if isinstance(error, BaseException):
                raise error


async def _until_done(ask: Callable[[], Awaitable[_T]]) -> _T:
    """Requests may go unanswered while the last fault is still felt."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await ask()
        except NatsError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(RETRY_S)


async def _until_answered(ask: Callable[[], Awaitable[int | None]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await ask() is None:  # noqa: ASYNC110
            await asyncio.sleep(RETRY_S)
