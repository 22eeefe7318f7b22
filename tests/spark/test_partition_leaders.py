"""What a task that writes asks of leaders, over real sockets; no Spark runs."""

from collections.abc import Iterator

import pytest

from streamlog.arrow.sink.partition_leaders import ClusterLeaders
from streamlog.client.blocking import BlockingCluster
from streamlog.errors import (
    InvalidProducerEpoch,
    NotLeader,
    OutOfOrderSequence,
    ProducerRefused,
    RecordTooLarge,
    RequestTimedOut,
    StreamNotFound,
)
from streamlog.model import TopicPartition
from streamlog.partition.producer_state_manager import ProducerAppend
from streamlog.partition.state import Acknowledgement
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.produced import ProducedBatch
from tests.kafka_node import ThreadedNode

TP = TopicPartition("orders", 0)
PATIENCE_MS = 20_000


@pytest.fixture
def threaded() -> Iterator[ThreadedNode]:
    with ThreadedNode() as node:
        node.add_stream("orders", 2)
        yield node


@pytest.fixture
def leaders(threaded: ThreadedNode) -> Iterator[ClusterLeaders]:
    with BlockingCluster.at(threaded.address) as cluster:
        yield ClusterLeaders(cluster, PATIENCE_MS)


def batch_of(*values: bytes) -> bytes:
    run = RecordRun()
    for value in values:
        run.append(None, value)
    return run.seal(
        base_offset=0,
        leader_epoch=-1,
        timestamp_ms=1_000,
        max_timestamp_ms=1_000,
        producer=(7, 0, 1),
    )


def values_from(leaders: ClusterLeaders, offset: int) -> list[bytes | None]:
    return [it.value for _, data in leaders.committed(TP, offset) for it in iter_records(data)]


def test_what_was_produced_is_read_back(leaders: ClusterLeaders) -> None:
    assert leaders.partition_count("orders") == 2
    assert leaders.produce(TP, batch_of(b"a", b"b")) == 0
    assert leaders.produce(TP, batch_of(b"c")) == 2
    assert values_from(leaders, 0) == [b"a", b"b", b"c"]
    assert values_from(leaders, 2) == [b"c"]
    assert values_from(leaders, 3) == []


def test_a_leader_that_is_away_for_a_moment_is_waited_for(
    threaded: ThreadedNode, leaders: ClusterLeaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, asked = threaded.partition("orders"), []
    produce = partition.produce

    def moving(batch: ProducedBatch, ack: Acknowledgement, **_: object) -> ProducerAppend:
        asked.append(batch)
        if len(asked) < 3:
            raise NotLeader("moved")
        return produce(batch, ack)

    monkeypatch.setattr(partition, "produce", moving)
    assert leaders.produce(TP, batch_of(b"a")) == 0
    assert len(asked) == 3
    assert values_from(leaders, 0) == [b"a"]


def test_what_retention_took_is_passed_over(
    threaded: ThreadedNode, leaders: ClusterLeaders
) -> None:
    leaders.produce(TP, batch_of(b"a", b"b"))
    leaders.produce(TP, batch_of(b"c"))
    threaded.partition("orders").log_start_offset = 2
    assert values_from(leaders, 0) == [b"c"]


def test_one_that_stays_away_is_named(threaded: ThreadedNode) -> None:
    threaded.partition("orders").producing_fails = NotLeader("moved")
    with BlockingCluster.at(threaded.address) as cluster:
        leaders = ClusterLeaders(cluster, 300)
        with pytest.raises(RequestTimedOut, match=r"orders-0: .*moved.* for 300 ms"):
            leaders.produce(TP, batch_of(b"a"))


@pytest.mark.parametrize("kind", [OutOfOrderSequence, InvalidProducerEpoch])
def test_a_refusal_tells_where_to_look(
    threaded: ThreadedNode, leaders: ClusterLeaders, kind: type[ProducerRefused]
) -> None:
    threaded.partition("orders").producing_fails = kind("x", 17)
    with pytest.raises(kind) as refused:
        leaders.produce(TP, batch_of(b"a"))
    assert refused.value.first_offset == 17


def test_a_batch_that_is_too_large_names_the_remedy(leaders: ClusterLeaders) -> None:
    with pytest.raises(RecordTooLarge, match=r"orders-0: .*; make batchBytes smaller"):
        leaders.produce(TP, batch_of(bytes(2_000_000)))


def test_a_stream_that_is_not_there_is_named(leaders: ClusterLeaders) -> None:
    with pytest.raises(StreamNotFound, match="there is no stream 'gone'; create it first"):
        leaders.partition_count("gone")
