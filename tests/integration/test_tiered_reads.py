"""Readers that have the object store at hand: objects from there, the tail from nodes, each record once."""

import asyncio
import itertools
import pickle
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

import streamlog.arrow
from streamlog.arrow import DataLoss, ReadPlan
from streamlog.arrow.location import PartitionRange
from streamlog.arrow.range_reader import open_location
from streamlog.errors import ConfigError, EncryptionKeyMissing, ObjectStoreUnavailable
from streamlog.tier import blocking_store
from tests.faulty_store import FaultyStore, Kind
from tests.peers.sources import cache
from tests.tiered_node import (
    COUNT,
    TOPIC,
    create,
    local_segments,
    produce,
    settings_of,
    tiered_objects,
    until_front_is_gone,
    value,
)
from tools.maven import MavenError
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import program, wait_until
from tools.s3_server import BUCKET, S3Server, credentials, jars

KEY = bytes(range(32)).hex()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    key = tmp_path / "k1.key"
    key.write_text(KEY)
    settings = {
        **settings_of(tmp_path),
        "encryption": {"active_key": "k1"},
        "encryption.keys": {"k1": f"file:{key}"},
    }
    with Cluster(tmp_path, nodes=1, settings=settings, nats=NoNats()) as cluster:
        yield cluster[1]


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    return (tmp_path / "bucket").as_uri()


def filled(node: NodeProcess, **configs: str) -> None:
    create(node.kafka, 1, **configs)
    produce(node.kafka, 0, COUNT)
    until_front_is_gone(node, COUNT // 2)


def planned(node: NodeProcess, bucket: str, **arguments: Any) -> ReadPlan:
    return streamlog.arrow.plan(
        TOPIC, servers=node.kafka, store=bucket, fetch_timeout_ms=10_000, **arguments
    )


def rows(plan: ReadPlan) -> list[tuple[int, bytes]]:
    table = plan.reader().read_all()
    return list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))


def written(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, value(number)) for number in range(first, end)]


def in_store(plan: ReadPlan) -> PartitionRange:
    """What the plan reads there of its only partition."""
    (range_,) = plan.ranges
    assert range_.stored is not None
    return replace(range_, end_offset=range_.stored.end_offset)


def streamlog_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("streamlog"), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def fetches(node: NodeProcess) -> int:
    """Requests so far; a node alone has no followers."""
    found = re.search(r'streamlog_requests_total\{api="Fetch"\} (\d+)', node.http("/metrics")[1])
    return int(found[1]) if found else 0


def test_objects_have_the_old_part_and_servers_the_tail(node: NodeProcess, bucket: str) -> None:
    filled(node)
    plan = planned(node, bucket)
    stored = in_store(plan)
    assert COUNT // 2 < stored.end_offset < COUNT
    before = fetches(node)
    found = [row for batch in plan.rows(stored) for row in batch["offset"].to_pylist()]
    assert found == list(range(stored.end_offset))
    assert fetches(node) == before
    assert rows(plan) == written(0, COUNT)
    assert fetches(node) > before
    assert rows(pickle.loads(pickle.dumps(plan))) == written(0, COUNT)


def test_what_is_in_the_store_and_on_the_node_is_read_once(
    node: NodeProcess, bucket: str, tmp_path: Path
) -> None:
    create(node.kafka, 1, **{"local.retention.ms": "3600000"})
    produce(node.kafka, 0, COUNT)
    wait_until(lambda: len(tiered_objects(tmp_path)) > 10, "segments are copied", 30)
    plan = planned(node, bucket)
    assert local_segments(node)[0] == 0
    assert in_store(plan).end_offset > COUNT // 4
    assert rows(plan) == written(0, COUNT)
    before = fetches(node)
    assert sum(it.num_rows for it in plan.rows(in_store(plan))) == in_store(plan).end_offset
    assert fetches(node) == before


def test_a_killed_node_is_not_missed_by_what_reads_history_alone(
    node: NodeProcess, bucket: str
) -> None:
    filled(node)
    plan = planned(node, bucket)
    history = planned(node, bucket, start=100, end=in_store(plan).end_offset - 7)
    node.kill()
    assert rows(history) == written(100, in_store(plan).end_offset - 7)
    node.start()
    assert rows(plan) == written(0, COUNT)


def test_an_export_reads_the_store(node: NodeProcess, bucket: str, tmp_path: Path) -> None:
    filled(node)
    end = in_store(planned(node, bucket)).end_offset
    before, file = fetches(node), tmp_path / "old.parquet"
    command = ["export", TOPIC, "--bootstrap-server", node.kafka, "--output", str(file)]
    done = streamlog_run(*command, "--to", str(end), "--store", bucket)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(file)
    found = zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    assert list(found) == written(0, end)
    assert fetches(node) == before
    for option in (["--path", str(tmp_path)], ["--store-endpoint", "http://127.0.0.1:1"]):
        given = ["--store", bucket] if "--path" in option else []
        wrong = streamlog_run(*command, "--force", *option, *given)
        assert wrong.returncode == 2
        assert "store" in wrong.stderr
    assert pq.read_table(file).equals(table)


def test_tasks_together_have_each_record_once(node: NodeProcess, bucket: str) -> None:
    filled(node, **{"segment.bytes": str(1 << 18)})
    plan = planned(node, bucket)
    with open_location(plan.options) as location:
        for piece_bytes in (5_000, 60_000, 1 << 30):
            tasks = location.cut(list(plan.ranges), piece_bytes, 1)
            found = [
                offset
                for task in tasks
                for batch in plan.rows(task)
                for offset in batch["offset"].to_pylist()
            ]
            assert found == list(range(COUNT))
            total = location.bytes_between(plan.ranges)[plan.ranges[0].name]
            assert len(tasks) >= total // piece_bytes // 2
            assert all(it.start_offset < it.end_offset for it in tasks)


def test_aborted_transactions_have_no_rows(node: NodeProcess, bucket: str) -> None:
    create(node.kafka)
    writer = Producer({"bootstrap.servers": node.kafka, "transactional.id": "t"})
    writer.init_transactions(30)
    for is_commit in (False, True, False):
        writer.begin_transaction()
        for number in range(300):
            writer.produce(
                TOPIC, b"%d-" % number + (b"committed" if is_commit else b"aborted") * 20
            )
        writer.flush(30)
        (writer.commit_transaction if is_commit else writer.abort_transaction)(30)
    produce(node.kafka, 0, 600)
    until_front_is_gone(node, 900)
    plan = planned(node, bucket)
    assert in_store(plan).end_offset > 900
    found = [it for _, it in rows(plan)]
    assert len([it for it in found if it.endswith(b"committed")]) == 300
    assert not [it for it in found if b"aborted" in it]
    assert found[300:] == [value(number) for number in range(600)]
    assert rows(plan) == rows(streamlog.arrow.plan(TOPIC, servers=node.kafka))


def test_encrypted_and_compressed_objects_are_opened_with_their_keys(
    node: NodeProcess, bucket: str, tmp_path: Path
) -> None:
    create(node.kafka, 1, **{"streamlog.encrypted": "true", "segment.bytes": "8192"})
    produce(node.kafka, 0, COUNT, **{"compression.type": "lz4"})
    until_front_is_gone(node, COUNT // 2)
    assert not any(b"xxxxxxxx" in it.read_bytes() for it in tiered_objects(tmp_path))
    with pytest.raises(EncryptionKeyMissing, match="set the option encryption_keys"):
        rows(planned(node, bucket))
    keys = {"k1": f"file:{tmp_path / 'k1.key'}"}
    assert rows(planned(node, bucket, encryption_keys=keys)) == written(0, COUNT)


def test_times_are_found_in_the_store(node: NodeProcess, bucket: str) -> None:
    filled(node)
    plan = planned(node, bucket)
    table = plan.reader().read_all()
    stored = in_store(plan).end_offset
    for offset in (1, 500, stored - 1, stored + 1):
        time: datetime = table["timestamp"][offset].as_py()
        arguments: Any = {"start": time}
        expected = streamlog.arrow.plan(TOPIC, servers=node.kafka, **arguments).ranges[0]
        found = planned(node, bucket, **arguments).ranges[0]
        assert (found.start_offset, found.end_offset) == (expected.start_offset, COUNT)


def delete_below(node: NodeProcess, offset: int) -> None:
    partition = KafkaPartition(TOPIC, 0, offset)
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.delete_records([partition])[partition].result(30)


def test_objects_that_retention_has_removed_since_the_plan_are_loss(
    node: NodeProcess, bucket: str, tmp_path: Path
) -> None:
    filled(node)
    strict = planned(node, bucket)
    lax = planned(node, bucket, fail_on_data_loss=False)
    first = tiered_objects(tmp_path)[0]
    delete_below(node, 1_000)
    wait_until(lambda: not first.exists(), "the first object is gone", 30)
    with pytest.raises(DataLoss, match=r"flights-0: offsets \[0, 1000\) .*the log starts at 1000"):
        rows(strict)
    assert rows(lax) == written(1_000, COUNT)
    assert rows(planned(node, bucket)) == written(1_000, COUNT)


def test_a_stream_that_was_created_again_is_never_mixed_with_its_predecessor(
    node: NodeProcess, bucket: str, tmp_path: Path
) -> None:
    filled(node)
    plan = planned(node, bucket)
    objects = tiered_objects(tmp_path)
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.delete_topics([TOPIC])[TOPIC].result(30)
    create(node.kafka)
    produce(node.kafka, 5_000, 5_000 + COUNT)
    wait_until(lambda: not any(it.exists() for it in objects), "all objects are gone", 60)
    with pytest.raises(DataLoss, match="deleted and created again"):
        rows(plan)
    until_front_is_gone(node, COUNT // 2)
    found = planned(node, bucket)
    assert in_store(found).end_offset > COUNT // 2
    assert rows(found) == [(it, value(5_000 + it)) for it in range(COUNT)]


def test_what_cannot_be_meant_is_refused(node: NodeProcess, bucket: str, tmp_path: Path) -> None:
    filled(node)
    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(ConfigError, match="store: there is no folder"):
        planned(node, elsewhere.as_uri())
    assert not elsewhere.exists()
    elsewhere.mkdir()
    with pytest.raises(ConfigError, match=r"store: it has no manifest .* tier\.url of the nodes"):
        planned(node, elsewhere.as_uri())
    for url in ("s3://key:secret@bucket/a", "s3://bucket/a?sig=x"):
        with pytest.raises(ConfigError, match="no secret may be in it; let each machine find"):
            planned(node, url)
    with pytest.raises(ConfigError, match="store: the nodes tell what in it counts"):
        streamlog.arrow.plan(TOPIC, path=str(tmp_path), store=bucket)
    with pytest.raises(ConfigError, match="store_endpoint: store is missing"):
        streamlog.arrow.plan(TOPIC, servers=node.kafka, store_endpoint="http://localhost:1")


def test_a_stream_that_is_not_tiered_is_read_from_servers(node: NodeProcess, bucket: str) -> None:
    create(node.kafka, 1, **{"remote.storage.enable": "false"})
    produce(node.kafka, 0, 100)
    (range_,) = planned(node, bucket).ranges
    assert range_.stored is None
    assert rows(planned(node, bucket)) == written(0, 100)


# With an S3 that does what stores and networks do


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        found = jars(cache())
    except MavenError as error:
        pytest.skip(f"no S3 server: {error}")
    with S3Server(tmp_path_factory.mktemp("s3"), found) as server:
        yield server


async def test_s3_that_fails_for_a_while_is_asked_again(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, told in credentials().items():
        monkeypatch.setenv(name, told)
    settings = settings_of(tmp_path)
    settings["tier"] |= {"url": f"s3://{BUCKET}/one", "endpoint": server.endpoint}

    def run() -> Cluster:
        return Cluster(tmp_path, nodes=1, settings=settings, nats=NoNats()).__enter__()

    cluster = await asyncio.to_thread(run)
    try:
        node = cluster[1]
        await asyncio.to_thread(filled, node)
        async with FaultyStore(server.port) as faulty:

            def read(look: Callable[[ReadPlan], Any] = rows) -> Any:
                return look(planned(node, f"s3://{BUCKET}/one", store_endpoint=faulty.endpoint))

            assert await asyncio.to_thread(read) == written(0, COUNT)
            kinds: tuple[Kind, ...] = (
                "unavailable",
                "slow down",
                "broken",
                "cut body",
                "changed body",
            )
            for kind in kinds:
                faulty.strike(kind, times=2, method="GET", within="/segments/")
                assert await asyncio.to_thread(read) == written(0, COUNT), kind
            faulty.strike("forbidden", times=1_000)
            with pytest.raises(ObjectStoreUnavailable, match=r"403 Forbidden.*credentials here"):
                await asyncio.to_thread(read)
    finally:
        cluster.close()


def test_only_what_is_needed_is_asked_of_the_store(
    node: NodeProcess, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One manifest for each plan, no list; and for the newest records nothing."""
    filled(node)
    wait_until(
        lambda: in_store(planned(node, bucket)).end_offset == local_segments(node)[-1],
        "all closed segments are in the store",
        60,
    )
    counts: list[dict[str, int]] = []
    close = blocking_store.BlockingStore.close

    def closed(store: blocking_store.BlockingStore) -> None:
        counts.append(store.request_counts)
        close(store)

    monkeypatch.setattr(blocking_store.BlockingStore, "close", closed)
    plan = planned(node, bucket)
    assert counts == [{"read": 1}]
    counts.clear()
    assert rows(planned(node, bucket, start=in_store(plan).end_offset)) == written(
        in_store(plan).end_offset, COUNT
    )
    assert counts == []
    stored = in_store(plan)
    assert stored.stored is not None
    list(plan.rows(stored))
    # For each segment one request for its parts, and one for its batches.
    assert counts == [{"read": 2 * len(stored.stored.segments)}]
    assert list(itertools.chain(*counts)) == ["read"]
