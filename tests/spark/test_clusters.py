"""Reading on clusters: Spark's executors in processes of their own, streamlog on three nodes.

Nodes and executors are killed in the middle of a job; its rows are those of a plain Kafka consumer.
"""

import json
import os
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import trustme
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.hazmat.primitives import serialization

from pyspark_streamlog.java import find_java_home
from tests.checkpoints import offsets_in
from tests.history import Lane
from tests.kafka_node import ThreadedNode
from tools.nodes.cluster import Cluster
from tools.nodes.ports import free_port
from tools.nodes.server_process import ServerProcess, listens, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

STREAM = "orders"
PARTITIONS = 3
RECORDS = 60_000
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
JOB_TIMEOUT_S = 300.0

Row = tuple[int, int, bytes]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "nodes", settings={"log": {"segment_bytes": 1 << 20}}) as cluster:
        topic = NewTopic(STREAM, num_partitions=PARTITIONS, replication_factor=3)
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        admin.create_topics([topic])[STREAM].result(30)
        cluster.wait_settled([Lane(STREAM, number) for number in range(PARTITIONS)])
        produce(cluster, 0, RECORDS)
        yield cluster


def produce(cluster: Cluster, first: int, end: int) -> None:
    settings = {"bootstrap.servers": cluster.servers, "acks": "all", "compression.type": "lz4"}
    producer = Producer({**settings, "linger.ms": 5, "batch.num.messages": 200})
    for i in range(first, end):
        producer.produce(STREAM, b"%d " % i + os.urandom(80).hex().encode(), partition=i % 3)
        producer.poll(0)
    assert producer.flush(60) == 0


def consumed(cluster: Cluster) -> list[Row]:
    """All rows, as a plain reader has them."""
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": "plain"})
    ends = [cluster.committed_end(Lane(STREAM, number)) for number in range(PARTITIONS)]
    consumer.assign([TopicPartition(STREAM, number, 0) for number in range(PARTITIONS)])
    found: list[Any] = []
    while len(found) < sum(ends):
        messages = consumer.consume(1_000, 10)
        assert messages, f"{len(found)} of {ends}"
        found += [(m.partition(), m.offset(), m.value()) for m in messages if m.error() is None]
    consumer.close()
    return sorted(found)


class Job:
    """``read_job.py`` in a process of its own."""

    def __init__(self, folder: Path, **request: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.barrier = folder / "barrier"
        self._rows = folder / "rows"
        request = {"rows": str(self._rows), **request}
        if request.pop("stops", False):
            self.barrier.mkdir()
            request["barrier"] = str(self.barrier)
        (folder / "request.json").write_text(json.dumps(request))
        self._log = folder / "job.log"
        command = [sys.executable, str(Path(__file__).with_name("read_job.py"))]
        self._process = ServerProcess([*command, str(folder / "request.json")], self._log)

    def start(self) -> None:
        root = Path(__file__).parents[2]
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "spark")])
        self._process.spawn()

    def wait_reading(self) -> None:
        """Until a task has its first rows; it reads on when ``go`` is called."""

        def reads() -> bool:
            assert self._process.is_running(), self._process.log_text()[-4000:]
            return any(self.barrier.glob("task-*"))

        wait_until(reads, "no task has rows", JOB_TIMEOUT_S)

    def go(self) -> None:
        (self.barrier / "go").touch()

    def wait(self) -> list[Row]:
        code = self._process.wait(JOB_TIMEOUT_S)
        assert code == 0, self._process.log_text()[-6000:]
        table = pq.read_table(self._rows, columns=["partition", "offset", "value"])
        return sorted(zip(*table.to_pydict().values(), strict=True))

    def run(self) -> list[Row]:
        self.start()
        return self.wait()

    def output(self) -> str:
        return self._process.log_text()

    def kill(self) -> None:
        self._process.kill()


def reading(cluster: Cluster) -> dict[str, str]:
    """Small fetches, so that a task is in the middle of its range for long."""
    return {
        "servers": cluster.servers,
        "subscribe": STREAM,
        "fetchMaxBytes": "30000",
        "batchRows": "500",
    }


def test_a_killed_node_leaves_the_rows_what_they_were(cluster: Cluster, tmp_path: Path) -> None:
    expected = consumed(cluster)
    job = Job(tmp_path / "job", master=LOCAL_CLUSTER, options=reading(cluster), stops=True)
    job.start()
    try:
        job.wait_reading()
        cluster.kill(cluster.leader(Lane(STREAM, 0)))
        job.go()
        assert job.wait() == expected
    finally:
        job.kill()


def test_a_killed_executor_leaves_the_rows_what_they_were(cluster: Cluster, tmp_path: Path) -> None:
    expected = consumed(cluster)
    killed = tmp_path / "killed"
    options = reading(cluster)
    job = Job(tmp_path / "job", master=LOCAL_CLUSTER, options=options, suicide=str(killed))
    try:
        assert job.run() == expected
        assert killed.exists()
    finally:
        job.kill()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and a worker, as an operator starts them."""
    import pyspark

    java = str(find_java_home())
    os.environ.update(JAVA_HOME=java, SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    run = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    master = ServerProcess(
        [run, f"{deploy}.master.Master", "-h", "127.0.0.1", "-p", str(port), "--webui-port", "0"],
        tmp_path / "master.log",
    )
    work = ["-d", str(tmp_path / "work"), "--webui-port", "0"]
    worker = ServerProcess(
        [run, f"{deploy}.worker.Worker", "-c", "2", "-m", "1500M", *work, url],
        tmp_path / "worker.log",
    )
    try:
        master.spawn()
        wait_until(lambda: listens(port), "the master", 120)
        worker.spawn()
        registered = "Successfully registered with master"
        wait_until(lambda: registered in worker.log_text(), "the worker", 120)
        yield url
    finally:
        worker.kill()
        master.kill()


def test_a_standalone_cluster_reads_a_stream_and_files(
    cluster: Cluster, standalone: str, tmp_path: Path
) -> None:
    expected = consumed(cluster)
    options = {
        **reading(cluster),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(RECORDS // 2),
    }
    checkpoint = {"checkpoint": str(tmp_path / "checkpoint")}
    job = Job(tmp_path / "job", master=standalone, options=options, **checkpoint)
    assert job.run() == expected
    produce(cluster, RECORDS, RECORDS + 999)
    cluster.restart(cluster.leader(Lane(STREAM, 1)))
    expected = consumed(cluster)
    assert job.run() == expected
    node = next(iter(cluster.nodes.values()))
    for number in range(PARTITIONS):
        lane = Lane(STREAM, number)
        wait_until(
            lambda lane=lane: node.replica(lane).end == cluster.committed_end(lane),  # type: ignore[misc]
            str(lane),
        )
    by_path = {"path": str(node.data_dir), "subscribe": STREAM, "minPartitions": "6"}
    # The checkpoint of high watermarks is written each second.
    wait_until(lambda: checkpointed(node.data_dir) == len(expected), "the checkpoint")
    assert Job(tmp_path / "files", master=standalone, options=by_path).run() == expected


def checkpointed(data_dir: Path) -> int:
    found = offsets_in(data_dir / "high-watermark-checkpoint")
    return sum(offset for (stream, _), offset in found.items() if stream == STREAM)


def test_plans_and_event_logs_hold_no_secret(tmp_path: Path) -> None:
    authority, secret = trustme.CA(), "correct-horse-battery-staple"
    files = {name: tmp_path / name for name in ("caFile", "certFile", "keyFile", "keyPasswordFile")}
    authority.cert_pem.write_to_path(str(files["caFile"]))
    issued = authority.issue_cert("client")
    issued.cert_chain_pems[0].write_to_path(str(files["certFile"]))
    files["keyFile"].write_bytes(encrypted(issued.private_key_pem.bytes(), secret))
    files["keyPasswordFile"].write_text(secret)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(server)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    with ThreadedNode(tls=lambda: server) as node:
        node.add_stream(STREAM)
        node.append(STREAM, [b"a", b"b"])
        options = {f"security.{name}": str(path) for name, path in files.items()}
        options |= {"servers": f"127.0.0.1:{node.node.port}", "subscribe": STREAM}
        events = tmp_path / "events"
        events.mkdir()
        conf = {"enabled": "true", "compress": "false", "dir": f"file://{events}"}
        conf = {f"spark.eventLog.{name}": value for name, value in conf.items()}
        job = Job(tmp_path / "job", master="local[1]", options=options, conf=conf)
        assert job.run() == [(0, 0, b"a"), (0, 1, b"b")]
    logs = [it.read_text(errors="replace") for it in events.rglob("*") if it.is_file()]
    shown = job.output() + "".join(logs)
    assert "streamlog" in shown
    assert "SparkListenerSQLExecutionStart" in shown
    assert secret not in shown
    assert "PRIVATE KEY" not in shown


def encrypted(key: bytes, password: str) -> bytes:
    encryption = serialization.BestAvailableEncryption(password.encode())
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, encryption
    )
