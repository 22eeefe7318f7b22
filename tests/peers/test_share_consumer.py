"""Java's KafkaShareConsumer in a share group of three nodes, one after another of which is killed."""

import subprocess
from pathlib import Path

import pytest

from tests.integration.group_clients import create, produce
from tests.integration.test_share_groups import GROUPS
from tests.peers.kafka_commands import kafka_jars
from tests.peers.sources import NoSourcesError
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import wait_until

pytestmark = [pytest.mark.peers, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("ShareMember.java")
PARTITIONS = 3
RECORDS = 9_000


def test_no_record_is_lost_and_none_comes_again(tmp_path: Path) -> None:
    try:
        jars = str(kafka_jars() / "*")
    except NoSourcesError as error:
        pytest.skip(f"Kafka's Java client cannot be had: {error}")
    subprocess.run(["javac", "-cp", jars, "-d", str(tmp_path), str(PROGRAM)], check=True)
    with Cluster(tmp_path / "cluster", settings={"groups": GROUPS}) as cluster:
        create(cluster.servers, "t", PARTITIONS, 3)
        for partition in range(PARTITIONS):
            values = [b"%d" % it for it in range(RECORDS // PARTITIONS)]
            produce(cluster.servers, "t", values, partition=partition)
        command = [
            "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m",
            "-cp", f"{tmp_path}:{jars}", "ShareMember", cluster.servers, "g", "t", str(RECORDS),
        ]  # fmt: skip
        out = tmp_path / "out"
        with out.open("w") as written, subprocess.Popen(command, stdout=written) as member:
            for number in (1, 2, 3):
                least = number * RECORDS // 5
                wait_until(lambda least=least: _done(out) > least, "records", 60)  # type: ignore[misc]
                cluster.restart(number)
            assert member.wait(120) == 0
        lines = [it for it in out.read_text().splitlines() if not it.startswith("so far")]
        assert lines == [f"done {RECORDS}"]


def _done(out: Path) -> int:
    lines = [it for it in out.read_text().splitlines() if it.startswith("so far")]
    return int(lines[-1].split()[-1]) if lines else 0
