"""Real processes for the integration tests: a nats-server, a node, and a stock Kafka reader."""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nats
import pytest
from nats.aio.client import Client

from tests.cluster_cli import Cli
from tests.integration.jetstream_pair import JetStreamServer, Pair, Side
from tests.integration.raw_publisher import RawPublisher
from tests.local_node import LocalNode
from tools.nodes.dev import Dev
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import NatsServer, StreamlogProcess

READ_TIMEOUT_S = 60.0
BARE = Path(__file__).parents[1] / "bare"
"""Modules that the programs find which the tests start."""


class Read(NamedTuple):
    """A record as a stock Kafka client sees it."""

    offset: int
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def read_stream(
    kafka: str, stream: str, start: int | None = None, stop: int | None = None
) -> list[Read]:
    """All records of partition 0 in ``[start, stop)``, by default from the first to the end."""
    from confluent_kafka import Consumer, TopicPartition

    from tests.watermarks import watermarks

    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "test",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    try:
        partition = TopicPartition(stream, 0)
        low, high = watermarks(consumer, partition, READ_TIMEOUT_S)
        start, stop = low if start is None else start, high if stop is None else stop
        consumer.assign([TopicPartition(stream, 0, start)])
        records: list[Read] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        while not records or records[-1].offset < stop - 1:
            if start >= stop:
                break
            for message in consumer.consume(10_000, timeout=0.2):
                if records and records[-1].offset >= stop - 1:
                    break  # the consumer reads ahead, perhaps into what cannot be read
                if message.error():
                    raise AssertionError(str(message.error()))
                told: Any = message.headers() or []
                place: Any = message.offset(), message.value()
                headers = tuple((str(k), bytes(v)) for k, v in told)
                records.append(Read(place[0], place[1], headers))
            assert time.monotonic() < deadline, f"{len(records)} records of [{start}, {stop})"
        return [record for record in records if record.offset < stop]
    finally:
        consumer.close()


@pytest.fixture(scope="session", autouse=True)
def _as_installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs are as they are without our tools: half of their start would be hypothesis."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(BARE), prepend=os.pathsep)
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("SSL_CERT_FILE", os.devnull)  # public CAs vouch for nobody here
        patch.setattr(StreamlogProcess, "is_forked", True)
        yield


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server without JetStream."""
    server = NatsServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def new_node(tmp_path: Path, nats_server: NatsServer) -> Iterator[Callable[..., NodeProcess]]:
    """Makes nodes (not yet started) on that server: ``new_node(data_dir=…, segment_bytes=…)``."""
    nodes: list[NodeProcess] = []

    def create(*, data_dir: Path | None = None, **log_settings: Any) -> NodeProcess:
        folder = tmp_path / f"node-{len(nodes)}"
        settings = {"log": log_settings}
        node = NodeProcess.alone(folder, nats_server.url, data_dir=data_dir, settings=settings)
        nodes.append(node)
        return node

    yield create
    for node in nodes:
        node.kill()


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """One ``streamlog dev`` for all tests that leave it running; each uses streams of its own."""
    yield from lasting_dev(tmp_path_factory)


def lasting_dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """For a fixture; it has to stop well."""
    server = Dev(tmp_path_factory.mktemp("dev"))
    server.start()
    yield server
    code = server.stop()
    assert code == 0, server.log_text()


@pytest.fixture
def new_dev(tmp_path: Path) -> Iterator[Callable[..., Dev]]:
    """Makes development clusters (not yet started) for tests that stop or break them."""
    servers: list[Dev] = []

    def create(*options: str, name: str = "dev", nats_server: bool = True) -> Dev:
        servers.append(Dev(tmp_path / name, *options, nats_server=nats_server))
        return servers[-1]

    yield create
    for server in servers:
        if server.is_running():
            server.stop()


@pytest.fixture
def read_all() -> Callable[..., list[Read]]:
    """``read_all(kafka, stream, start, stop)`` by confluent-kafka."""
    return read_stream


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """``streamlog dev --nodes 3``; each test uses streams of its own and leaves three nodes."""
    server = Dev(tmp_path_factory.mktemp("trio"), "--nodes", "3")
    server.start()
    yield server
    code = server.stop(60)
    assert code == 0, server.log_text()


@pytest.fixture(scope="module")
def cli(trio: Any) -> Cli:
    return Cli(trio)


@pytest.fixture(scope="module")
def jetstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JetStreamServer]:
    server = JetStreamServer(tmp_path_factory.mktemp("jetstream"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def plain_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def pair(
    tmp_path: Path, jetstream: JetStreamServer, plain_nats: NatsServer
) -> AsyncIterator[Pair]:
    async with (
        LocalNode(tmp_path / "data", plain_nats.url),
        RawPublisher(jetstream.url) as theirs,
        RawPublisher(plain_nats.url) as ours,
    ):
        for stream in (await Side(theirs).api("STREAM.NAMES"))["streams"] or []:
            await Side(theirs).api(f"STREAM.DELETE.{stream}")
        yield Pair(Side(theirs), Side(ours), jetstream.stream_names)


@pytest.fixture
async def node(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[LocalNode]:
    async with LocalNode(tmp_path / "data", nats_server.url) as started:
        yield started


@pytest.fixture
async def nc(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await nats.connect(nats_server.url)
    yield client
    await client.close()
