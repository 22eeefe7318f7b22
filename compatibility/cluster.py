"""The nodes under test: ``streamlog dev``, of which single nodes are killed and started again."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from compatibility.outcome import Failed
from streamlog.cli.dev.die_with_parent import leashed

NODES: Final = 3
TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.05

STREAMLOG: Final = (sys.executable, "-m", "streamlog")


class Cluster:
    """``with Cluster(folder) as cluster``: all nodes ready; all ended afterwards."""

    def __init__(self, folder: Path, nodes: int = NODES) -> None:
        self.folder = folder
        self.size = nodes
        self._state: dict[str, Any] = {}
        self.admin: AdminClient
        """Of the client that the results of all others are judged by; there while it runs."""
        self._killed: set[int] = set()
        self._restarted: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        command = [*STREAMLOG, "dev", "--nodes", str(self.size), "--data-dir", str(self.folder)]
        for name in ("nats", "kafka", "http"):
            command += [f"--{name}-port", "0"]
        self._dev = self._start(command, "dev.log")
        try:
            self._wait_for_state()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def nats(self) -> str:
        return str(self._state["nats"])

    @property
    def servers(self) -> str:
        """Bootstrap servers of Kafka clients."""
        return ",".join(node["kafka"] for node in self._state["nodes"])

    def new_admin(self) -> AdminClient:
        """One that remembers no coordinator, since the others wait for a dead one."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    @property
    def replicas(self) -> int:
        """Of each stream: one on every node."""
        return self.size

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads the partition; waits until there is one."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            with contextlib.suppress(KafkaException, KeyError):
                topics = self.admin.list_topics(topic, timeout=5).topics
                leader = int(topics[topic].partitions[partition].leader)
                if leader > 0:
                    return leader
            if time.monotonic() > deadline:
                raise Failed(f"nobody leads {topic}")
            time.sleep(POLL_S)

    def folder_of(self, topic: str, partition: int = 0) -> Path:
        """Where the leader keeps the partition."""
        node = self.folder / f"node-{self.leader(topic, partition)}"
        (found,) = node.glob(f"**/streams/{topic}/{partition}")
        return found

    def kill(self, number: int) -> None:
        """As a crash."""
        self._killed.add(number)
        restarted = self._restarted.pop(number, None)
        os.kill(restarted.pid if restarted else self._node(number)["pid"], signal.SIGKILL)
        if restarted:
            restarted.wait()

    def mend(self) -> None:
        """Start what was killed again, and wait until the whole cluster is in sync."""
        while self._killed:
            number = self._killed.pop()
            command = [*STREAMLOG, "serve", "--config", self._node(number)["config"]]
            self._restarted[number] = self._start(command, f"node-{number}-again.log")
            self._wait_ready(self._node(number)["http"])
        self._command("check", "--wait", "--timeout", str(int(TIMEOUT_S)))
        self._command("rebalance")

    def _command(self, *words: str) -> None:
        command = [*STREAMLOG, "cluster", *words, "--bootstrap-server", self.servers]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"cluster {words[0]}: {done.stderr or done.stdout}")

    def _node(self, number: int) -> dict[str, Any]:
        node: dict[str, Any] = next(it for it in self._state["nodes"] if it["id"] == number)
        return node

    def _start(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as output:
            return subprocess.Popen(
                leashed(command), stdout=output, stderr=output, start_new_session=True
            )

    def _wait_for_state(self) -> None:
        path, deadline = self.folder / "dev.json", time.monotonic() + TIMEOUT_S
        while not path.exists():
            if self._dev.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"streamlog dev is not ready: {(self.folder / 'dev.log').read_text()}")
            time.sleep(POLL_S)
        self._state = json.loads(path.read_text())
        self.admin = self.new_admin()

    def _wait_ready(self, http: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{http}/readyz", timeout=2):
                return
            time.sleep(POLL_S)
        raise Failed(f"{http} is not ready within {TIMEOUT_S:.0f} s")

    def _stop(self) -> None:
        """The parent ends its own nodes, those that were started again are ours to end."""
        processes = [*self._restarted.values(), self._dev]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
