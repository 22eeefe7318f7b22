"""Apache Kafka on this machine: one broker that is its own controller, from its Java archives.

Its settings are those of its distribution (``config/server.properties``, the options of ``kafka-server-start.sh``), but
for what one broker alone needs.
"""

import os
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.connection import BenchmarkError
from tools.maven import MavenError, archives
from tools.nodes.ports import free_port
from tools.nodes.server_process import ServerProcess, wait_until

VERSION: Final = "4.2.0"
ARTIFACTS: Final = tuple(f"org.apache.kafka:{it}:{VERSION}" for it in ("kafka_2.13", "kafka-tools"))
START_TIMEOUT_S: Final = 60.0
JAVA_OPTIONS: Final = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)
"""Those of ``kafka-run-class.sh``."""
SETTINGS: Final[Mapping[str, object]] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "auto.create.topics.enable": "false",
    "num.network.threads": 3,
    "num.io.threads": 8,
    "socket.send.buffer.bytes": 102_400,
    "socket.receive.buffer.bytes": 102_400,
}


def jars() -> Path:
    """Raises BenchmarkError where they cannot be had."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    try:
        return archives(ARTIFACTS, Path(home, "streamlog", f"kafka-{VERSION}"))
    except MavenError as error:
        raise BenchmarkError(str(error)) from None


def missing() -> str:
    """Why it cannot be measured here; empty where it can."""
    try:
        jars()
    except BenchmarkError as error:
        return str(error)
    return ""


def java(*arguments: str, options: Sequence[str] = ()) -> list[str]:
    """The command that runs a class of Kafka's."""
    return ["java", *options, "-cp", str(jars() / "*"), *arguments]


class KafkaBroker:
    """Started, it takes requests at ``kafka``."""

    name = "Apache Kafka"

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        port, controller = free_port(), free_port()
        self.kafka = f"127.0.0.1:{port}"
        settings = {
            **SETTINGS,
            "log.dirs": directory / "logs",
            "listeners": f"PLAINTEXT://{self.kafka},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.kafka}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }
        properties = directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatting = (
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster}",  # it may begin with a hyphen
            f"--config={properties}",
        )
        done = subprocess.run(java(*formatting), capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchmarkError(f"kafka-storage format: {(done.stdout + done.stderr)[-500:]}")
        command = java("kafka.Kafka", str(properties), options=JAVA_OPTIONS)
        self._process = ServerProcess(command, directory / "log")
        begun = time.perf_counter()
        self._process.spawn()
        _wait_until_answers(self._process, self.kafka)
        self.start_s = time.perf_counter() - begun
        self.pids: Sequence[int] = (self._process.pid,)

    def stop(self) -> None:
        self._process.end()


def _wait_until_answers(server: ServerProcess, servers: str) -> None:
    """Until it takes a client's metadata request."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient(
        {
            "bootstrap.servers": servers,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 20,
            "log_level": 0,
        }
    )

    def answers() -> bool:
        server.check_running()
        try:
            client.list_topics(timeout=0.2)
        except KafkaException:
            return False
        return True

    wait_until(answers, "Kafka does not answer", START_TIMEOUT_S)
