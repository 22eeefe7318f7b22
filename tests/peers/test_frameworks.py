"""Frameworks in Python that build on Kafka, each in an environment of its own, while they and a node are killed."""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.history import Lane
from tests.peers.sources import cache
from tools.maven import MavenError, archives
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import ServerProcess, wait_until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PROGRAMS: Final = Path(__file__).parent / "frameworks"
INSTALL_TIMEOUT_S: Final = 600.0
PARTITIONS: Final = 4
KEYS: Final = 20
RECORDS: Final = 4_000
WAIT_S: Final = 120.0


class Framework(NamedTuple):
    """``counts``: what it sends to ``out`` are counts, which go on after it was killed; else what came in.

    ``guarantee``: an argument of its program. ``archive``: in Java, whose folder is another one.
    """

    package: str
    program: str
    counts: bool = True
    guarantee: str | None = None
    archive: str | None = None

    @property
    def name(self) -> str:
        name = self.package.partition("=")[0]
        return name if self.guarantee is None else f"{name}, {self.guarantee}"


EXACTLY_ONCE: Final = "exactly-once"
FLINK: Final = ("apache-flink==2.2.1", "flink_count.py")
FLINK_CONNECTOR: Final = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"


FRAMEWORKS: Final = (
    Framework("quixstreams==3.28.1", "quix_count.py"),
    Framework("faust-streaming==0.15.3", "faust_count.py"),
    Framework("bytewax[kafka]==0.21.1", "bytewax_count.py"),
    Framework("faststream[kafka]==0.7.8", "faststream_count.py", counts=False),
    Framework(*FLINK, guarantee="at-least-once", archive=FLINK_CONNECTOR),
    Framework(*FLINK, guarantee=EXACTLY_ONCE, archive=FLINK_CONNECTOR),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"kafka": {"default_replicas": 3}, "groups": {"initial_rebalance_delay_ms": 500}}
    with Cluster(tmp_path_factory.mktemp("nodes"), settings=settings) as cluster:
        yield cluster


def python_with(package: str) -> Path:
    """The interpreter of an environment that has it; skips the test where it cannot be had."""
    folder = cache() / f"framework-{package.replace('[', '-').replace(']', '')}"
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        try:
            for command in (
                [sys.executable, "-m", "venv", "--clear", str(folder)],
                [str(python), "-m", "pip", "install", "--quiet", package],
            ):
                subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"{package} cannot be had: {error}")
        (folder / "done").touch()
    return python


def arguments_of(framework: Framework) -> list[str]:
    """Further ones of its program; skips the test where they cannot be had."""
    found = [] if framework.guarantee is None else [framework.guarantee]
    if framework.archive is not None:
        folder = cache() / "-".join(framework.archive.split(":")[1:])
        try:
            found.append(str(archives([framework.archive], folder)))
        except MavenError as error:
            pytest.skip(f"{framework.archive} cannot be had: {error}")
    return found


class Output:
    """What readers of committed records see."""

    def __init__(self, servers: str) -> None:
        self.values: dict[bytes, list[int]] = defaultdict(list)
        settings = {"bootstrap.servers": servers, "group.id": "output", "log_level": 0}
        self._consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition("out", it, 0) for it in range(PARTITIONS)])

    def has(self, wanted: dict[bytes, int]) -> bool:
        """Whether there is each number up to its key's, at the least once."""
        for message in self._consumer.consume(10_000, 0.5):
            if message.error() is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                self.values[bytes(key)].append(int(value))
        return all(set(self.values[it]) >= set(range(1, end + 1)) for it, end in wanted.items())

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda it: it.name)
def test_it_counts_all_through_kills(
    cluster: Cluster, tmp_path: Path, framework: Framework
) -> None:
    python, more = python_with(framework.package), arguments_of(framework)
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    for topic in ("in", "out"):
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
    cluster.wait_settled([Lane(topic, it) for topic in ("in", "out") for it in range(PARTITIONS)])
    producer = Producer({"bootstrap.servers": cluster.servers, "enable.idempotence": True})
    sent: dict[bytes, int] = defaultdict(int)

    def produce(count: int) -> None:
        for number in range(count):
            key = b"k%d" % (number % KEYS)
            sent[key] += 1
            producer.produce("in", b"%d" % sent[key], key)
            producer.poll(0)
        assert producer.flush(60) == 0

    def start() -> ServerProcess:
        command = [str(python), str(PROGRAMS / framework.program), cluster.servers]
        made = ServerProcess([*command, str(tmp_path / "state"), *more], tmp_path / "framework.log")
        made.spawn()
        return made

    def wait_for(what: str) -> None:
        def look() -> bool:
            running.check_running()
            return output.has(sent)

        wait_until(look, what, WAIT_S)

    output, running = Output(cluster.servers), start()
    try:
        produce(RECORDS // 2)
        wait_for("the first half is not there")
        running.kill()
        produce(RECORDS // 4)
        running = start()
        wait_for("what came while it was away is not there")
        leader = cluster.leader(("out", 0))
        cluster.kill(leader)
        produce(RECORDS // 4)
        wait_for("what came while a node was away is not there")
        cluster.start(leader)
        if framework.counts:
            assert all(max(output.values[it]) >= end for it, end in sent.items())
        if framework.guarantee == EXACTLY_ONCE:
            assert output.values == {it: [*range(1, end + 1)] for it, end in sent.items()}
    finally:
        running.kill()
        output.close()
        names = [it for it in admin.list_topics(timeout=10).topics if not it.startswith("__")]
        for future in admin.delete_topics(names).values():
            future.result(30)
        if gone := [it for it, node in cluster.nodes.items() if not node.is_running()]:
            cluster.start(*gone)
