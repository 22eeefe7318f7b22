"""Both ways of reading, against a real node: what NATS brought, deletion, streams created anew."""

from collections.abc import Iterator
from typing import Any

import nats
import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.data_loss import DataLoss
from streamlog.arrow.files.file_reader import FileReader
from streamlog.arrow.location import PartitionRange
from streamlog.arrow.offset_ranges import plan_offset_ranges
from streamlog.arrow.range_reader import open_location
from streamlog.arrow.servers.fetch_reader import FetchReader
from streamlog.errors import EncryptionKeyMissing
from streamlog.record.columns import arrow_schema
from tests.checkpoints import offsets_in
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import wait_until

COLUMNS = ("offset", "subject", "value")
ADMIN_TIMEOUT_S = 30
Row = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("node")
    key = directory / "k1.key"
    key.write_text(bytes(range(32)).hex())
    settings = {"encryption": {"active_key": "k1"}, "encryption.keys": {"k1": f"file:{key}"}}
    with Cluster(directory, nodes=1, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.servers})


def create(admin: AdminClient, stream: str, **config: str) -> None:
    topic = NewTopic(stream, 1, 1, config=config)
    admin.create_topics([topic])[stream].result(ADMIN_TIMEOUT_S)


async def publish(cluster: Cluster, stream: str, count: int) -> None:
    connection = await nats.connect(cluster.nats.url)
    for i in range(count):
        await connection.jetstream().publish(stream, b"%d" % i, timeout=10)
    await connection.close()


def places(cluster: Cluster) -> list[dict[str, str]]:
    return [
        {"servers": cluster.servers, "fetchTimeoutMs": "10000"},
        {"path": str(cluster[1].data_dir)},
    ]


def plan(place: dict[str, str], stream: str) -> tuple[SourceOptions, list[PartitionRange]]:
    options = SourceOptions.parse({**place, "subscribe": stream})
    with open_location(options) as opened:
        return options, plan_offset_ranges(opened, options)


def read(range_: PartitionRange, options: SourceOptions) -> list[Row]:
    reader = FileReader if options.path is not None else FetchReader
    batches = reader(range_, options, arrow_schema(COLUMNS)).read()
    return [row for batch in batches for row in batch.to_pylist()]


def wait_checkpointed(cluster: Cluster, stream: str, end: int) -> None:
    """The node writes it each second."""
    file = cluster[1].data_dir / "high-watermark-checkpoint"

    def is_written() -> bool:
        return offsets_in(file).get((stream, 0)) == end

    wait_until(is_written, "the checkpoint")


async def test_an_encrypted_stream_takes_a_key_by_path_and_none_from_servers(
    cluster: Cluster, admin: AdminClient
) -> None:
    create(admin, "sealed", **{"streamlog.encrypted": "true"})
    await publish(cluster, "sealed", 30)
    wait_checkpointed(cluster, "sealed", 30)
    served, lying = places(cluster)
    options, [range_] = plan(served, "sealed")
    rows = read(range_, options)
    assert [row["value"] for row in rows] == [b"%d" % i for i in range(30)]
    options, [range_] = plan(lying, "sealed")
    with pytest.raises(EncryptionKeyMissing, match=r"set the option encryption\.keys"):
        read(range_, options)
    source = cluster.settings["encryption.keys"]["k1"]
    options, [range_] = plan({**lying, "encryption.keys": f"k1={source}"}, "sealed")
    assert read(range_, options) == rows


async def test_both_ways_give_the_same_rows(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "orders")
    await publish(cluster, "orders", 30)
    wait_checkpointed(cluster, "orders", 30)
    expected = [{"offset": i, "subject": "orders", "value": b"%d" % i} for i in range(30)]
    ids = set()
    for place in places(cluster):
        options, (range_,) = plan(place, "orders")
        ids.add(range_.stream_id)
        assert read(range_, options) == expected
    assert len(ids) == 1


async def test_records_that_were_deleted_after_the_plan_are_loss(
    cluster: Cluster, admin: AdminClient
) -> None:
    create(admin, "brief")
    await publish(cluster, "brief", 30)
    wait_checkpointed(cluster, "brief", 30)
    strict, (range_,) = plan(places(cluster)[0], "brief")
    partition = KafkaPartition("brief", 0, 12)
    admin.delete_records([partition])[partition].result(ADMIN_TIMEOUT_S)
    with pytest.raises(DataLoss, match=r"brief-0: offsets \[0, 12\) .*the log starts at 12 now"):
        read(range_, strict)
    lax = SourceOptions.parse(
        {**places(cluster)[0], "subscribe": "brief", "failOnDataLoss": "false"}
    )
    assert [row["offset"] for row in read(range_, lax)] == list(range(12, 30))
    _, (planned,) = plan(places(cluster)[0], "brief")
    assert planned.start_offset == 12


async def test_a_stream_that_was_created_anew_after_the_plan_is_loss(
    cluster: Cluster, admin: AdminClient
) -> None:
    create(admin, "again")
    await publish(cluster, "again", 5)
    wait_checkpointed(cluster, "again", 5)
    plans = [plan(place, "again") for place in places(cluster)]
    admin.delete_topics(["again"])["again"].result(ADMIN_TIMEOUT_S)
    for options, (range_,) in plans:
        with pytest.raises(DataLoss, match=r"again-0: offsets \[0, 5\) .*the stream was deleted"):
            read(range_, options)
    create(admin, "again")
    await publish(cluster, "again", 7)
    wait_checkpointed(cluster, "again", 7)
    for options, (range_,) in plans:
        with pytest.raises(DataLoss, match=r"again-0: offsets \[0, 5\) .*created again"):
            read(range_, options)
    for place in places(cluster):
        options, (range_,) = plan(place, "again")
        assert len(read(range_, options)) == 7
