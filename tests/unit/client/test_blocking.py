"""The client without an event loop, against a node that lives in another thread."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.client import retry
from streamlog.client.blocking import BlockingCluster, BlockingConnection, with_retries
from streamlog.errors import (
    ConfigError,
    FrameTooLarge,
    MalformedFrame,
    NodeUnreachable,
    NotLeader,
    RequestTimedOut,
    StreamNotFound,
    UnsupportedVersion,
)
from streamlog.metadata.commands import Granted
from streamlog.model import NO_LEADER, TopicPartition
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records
from streamlog.wire import api_messages, registry
from streamlog.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from streamlog.wire.framing import frame
from streamlog.wire.registry import API_VERSIONS, APIS, INIT_PRODUCER_ID, PRODUCE
from streamlog.wire.special_offsets import EARLIEST, LATEST, NOT_FOUND
from tests.certificate_authority import CertificateAuthority
from tests.fake_metadata import CLUSTER_ID
from tests.kafka_node import ThreadedNode
from tests.record_batches import HandRecord, hand_batch

FLIGHTS = TopicPartition("flights", 0)
Talk = Callable[[socket.socket], None]


@pytest.fixture
def threaded() -> Iterator[ThreadedNode]:
    with ThreadedNode() as node:
        yield node


@pytest.fixture
def cluster(threaded: ThreadedNode) -> Iterator[BlockingCluster]:
    with BlockingCluster.at(threaded.address) as cluster:
        yield cluster


def wanted(topic_id: UUID | None, offset: int, max_bytes: int = 1 << 20) -> FetchRequest:
    assert topic_id is not None
    topic = FetchTopic("flights", [FetchPartition(0, offset, max_bytes)], topic_id.bytes)
    return FetchRequest([topic], 0, 1, max_bytes)


@contextlib.contextmanager
def talking(talk: Talk) -> Iterator[int]:
    """A node that says what a test wants it to, to one client."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        sock, _ = listening.accept()
        with sock, contextlib.suppress(OSError):
            talk(sock)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        thread.join(10)
        listening.close()


def asked(sock: socket.socket) -> bytes:
    """The correlation id of the next request."""
    reader = sock.makefile("rb")
    return reader.read(int.from_bytes(reader.read(4), "big"))[4:8]


def versions(keys: list[tuple[int, int, int]]) -> bytes:
    named = [{"api_key": k, "min_version": a, "max_version": b} for k, a, b in keys]
    return api_messages.encode_response(APIS[API_VERSIONS], 0, {"api_keys": named})


def test_the_cluster_and_its_streams(threaded: ThreadedNode, cluster: BlockingCluster) -> None:
    threaded.add_stream("flights", 2)
    topology = cluster.topology()
    assert topology.cluster_id == CLUSTER_ID
    assert [it.partition for it in topology.topics["flights"].partitions] == [0, 1]
    assert cluster.leader(FLIGHTS)[0].address == threaded.address
    with pytest.raises(StreamNotFound, match="nowhere"):
        cluster.topic("nowhere")


def test_offsets_and_sizes(threaded: ThreadedNode, cluster: BlockingCluster) -> None:
    threaded.add_stream("flights", 2)
    threaded.append("flights", [b"a", b"b"], timestamp_ms=1_000)
    threaded.append("flights", [b"c"], timestamp_ms=2_000)
    other = TopicPartition("flights", 1)
    assert cluster.list_offsets([FLIGHTS, other], LATEST) == {FLIGHTS: 3, other: 0}
    assert cluster.list_offsets([FLIGHTS, other], EARLIEST) == {FLIGHTS: 0, other: 0}
    assert cluster.list_offsets([FLIGHTS, other], 1_500) == {FLIGHTS: 2, other: NOT_FOUND}
    sizes = cluster.log_bytes([FLIGHTS, other])
    assert sizes[FLIGHTS] > 120
    assert sizes[other] == 0


def test_records_are_fetched_by_the_id_of_the_stream(
    threaded: ThreadedNode, cluster: BlockingCluster
) -> None:
    threaded.add_stream("flights")
    threaded.append("flights", [b"a", b"b"])
    threaded.append("flights", [b"c"])
    topic_id = cluster.topic("flights").topic_id
    connection = cluster.connection(cluster.leader(FLIGHTS)[0])
    assert connection.fetches_by_id
    connection.send_fetch(wanted(topic_id, 1))
    (fetched,) = connection.receive_fetch().partitions
    values = [r.value for _, batch in batches(fetched.records) for r in iter_records(batch)]
    assert values == [b"a", b"b", b"c"]
    assert fetched.fetched.high_watermark == 3


def test_records_are_produced(threaded: ThreadedNode, cluster: BlockingCluster) -> None:
    threaded.add_stream("flights")
    threaded.node.metadata.result = Granted(0, {"first": 5, "end": 6})
    node, _ = cluster.leader(FLIGHTS)
    producer = cluster.ask(node, INIT_PRODUCER_ID, {"transactional_id": None})
    assert (producer["error_code"], producer["producer_id"]) == (0, 5)
    records = hand_batch([HandRecord(b"x")])
    partition = {"index": 0, "records": records}
    topic_id = cluster.topic("flights").topic_id
    data = [{"name": "flights", "topic_id": topic_id, "partition_data": [partition]}]
    values = {"transactional_id": None, "acks": -1, "timeout_ms": 1_000, "topic_data": data}
    answer = cluster.ask(node, PRODUCE, values)
    (produced,) = answer["responses"][0]["partition_responses"]
    assert (produced["error_code"], produced["base_offset"]) == (0, 0)
    assert cluster.list_offsets([FLIGHTS], LATEST) == {FLIGHTS: 1}


def test_a_connection_that_the_node_has_closed_is_opened_anew(
    threaded: ThreadedNode, cluster: BlockingCluster
) -> None:
    node = cluster.topology().nodes[cluster.topology().controller]
    connection = cluster.connection(node)
    connection._sock.shutdown(socket.SHUT_RDWR)
    assert connection.broken
    assert cluster.connection(node) is not connection
    assert cluster.topology().cluster_id == CLUSTER_ID


def test_without_a_leader_nothing_is_found(
    threaded: ThreadedNode, cluster: BlockingCluster
) -> None:
    threaded.add_stream("flights")
    threaded.call(lambda: threaded.node.metadata.change("flights", 0, leader=NO_LEADER))
    with pytest.raises(NotLeader, match="flights-0 has no leader"):
        cluster.list_offsets([FLIGHTS], LATEST)


def test_who_leads_is_asked_anew_after_an_error(
    threaded: ThreadedNode, cluster: BlockingCluster
) -> None:
    partition = threaded.add_stream("flights")
    partition.is_leader = False
    with pytest.raises(NotLeader, match="flights-0"):
        cluster.list_offsets([FLIGHTS], LATEST)
    partition.is_leader = True
    assert cluster.list_offsets([FLIGHTS], LATEST) == {FLIGHTS: 0}


def test_servers_are_tried_in_turn(threaded: ThreadedNode) -> None:
    with BlockingCluster.at(f"127.0.0.1:1, {threaded.address}") as cluster:
        assert cluster.topology().cluster_id == CLUSTER_ID


def test_a_host_that_cannot_be_a_name_is_not_reached() -> None:
    with pytest.raises(NodeUnreachable, match="cannot be a name"):
        BlockingConnection.open(".", 9092)


def test_no_server_answers() -> None:
    with (
        BlockingCluster.at("127.0.0.1:1,127.0.0.1:2") as cluster,
        pytest.raises(NodeUnreachable, match=r"127.0.0.1:1: .*; 127.0.0.1:2: "),
    ):
        cluster.topology()


def test_an_address_that_is_none() -> None:
    with pytest.raises(ConfigError, match="servers"):
        BlockingCluster.at("localhost")


def _hear_two(sock: socket.socket) -> None:
    if sock.recv(1 << 20):
        sock.recv(1 << 20)


def test_silence_is_not_waited_for() -> None:
    with (
        talking(_hear_two) as port,
        pytest.raises(RequestTimedOut, match="ApiVersions after 50 ms"),
    ):
        BlockingConnection.open("127.0.0.1", port, timeout_ms=50)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda _: b"", NodeUnreachable),
        (lambda _: b"\x00\x00\x00\x09abc", NodeUnreachable),
        (lambda _: b"\x7f\xff\xff\xff", FrameTooLarge),
        (lambda _: frame(b"\x00\x00\x00\x63", versions([])), MalformedFrame),
        (lambda cid: frame(cid, b"\x00"), MalformedFrame),
    ],
)
def test_nonsense_ends_the_connection(
    answer: Callable[[bytes], bytes], error: type[Exception]
) -> None:
    with talking(lambda sock: sock.sendall(answer(asked(sock)))) as port, pytest.raises(error):
        BlockingConnection.open("127.0.0.1", port)


def test_an_api_that_the_node_does_not_speak() -> None:
    offered = [(registry.METADATA, 0, 13)]
    with (
        talking(lambda sock: sock.sendall(frame(asked(sock), versions(offered)))) as port,
        BlockingConnection.open("127.0.0.1", port) as connection,
        pytest.raises(UnsupportedVersion, match="does not speak our Fetch"),
    ):
        connection.send_fetch(FetchRequest([], 0, 1, 1))


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "BACKOFF_MS", 1)
    tries: list[int] = []

    def ask() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise NotLeader("flights-0 has no leader")
        return 7

    assert with_retries(ask, 10_000) == 7
    tries.clear()
    with pytest.raises(RequestTimedOut, match="flights: flights-0 has no leader, for 0 ms"):
        with_retries(ask, 0, about="flights")


def test_tls(tmp_path: Path) -> None:
    authority, stranger = (
        CertificateAuthority(tmp_path),
        CertificateAuthority(tmp_path / "stranger"),
    )
    server = authority.server(authority.issue("node"), "required")
    alice = authority.client(authority.issue("alice"))
    with ThreadedNode(tls=lambda: server) as node:
        with BlockingConnection.open("localhost", node.node.port, tls=alice) as connection:
            asked = connection.request(registry.METADATA, {"topics": []})
            assert asked["cluster_id"] == CLUSTER_ID
        for client, said in (
            (stranger.client(), "its certificate is not accepted: "),
            (authority.client(), "it wants a certificate, and we showed none"),
        ):
            with pytest.raises(NodeUnreachable, match=f"TLS: {said}"):
                BlockingConnection.open("localhost", node.node.port, tls=client)


def test_a_closed_connection_says_so(threaded: ThreadedNode) -> None:
    host, port = threaded.address.split(":")
    connection = BlockingConnection.open(host, int(port))
    connection.close()
    assert connection.broken
    with pytest.raises(NodeUnreachable, match="the connection is closed"):
        connection.request(registry.METADATA, {"topics": []})


def test_waiting_blocks_no_longer_than_asked(
    threaded: ThreadedNode, cluster: BlockingCluster
) -> None:
    threaded.add_stream("flights")
    connection = cluster.connection(cluster.leader(FLIGHTS)[0])
    request = wanted(cluster.topic("flights").topic_id, 0)._replace(max_wait_ms=50)
    started = time.monotonic()
    (fetched,) = connection.fetch(request).partitions
    assert len(fetched.records) == 0
    assert time.monotonic() - started >= 0.04
