"""The nodes under test, of which single ones are killed and started again."""

from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from compatibility.outcome import Failed
from streamlog.coordination.keys import partition_of
from streamlog.metadata.stream.stream_config import TRANSACTIONS_STREAM
from tools.nodes.cluster import Cluster as NodeProcesses
from tools.nodes.node_process import Settings
from tools.nodes.server_process import NatsServer

NODES: Final = 3
TIMEOUT_S: Final = 90.0

AS_DEV: Final[Settings] = {
    "nats": {"default_api_prefix": True},
    "groups": {"initial_rebalance_delay_ms": 0},
    "logging": {"format": "console"},
}
"""What ``streamlog dev`` changes of the defaults."""


class Cluster(NodeProcesses):
    """``with Cluster(folder) as cluster``: all nodes ready; all ended afterwards."""

    def __init__(self, folder: Path, nodes: int = NODES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        nats = NatsServer(folder, tuned=True)
        super().__init__(folder, nodes=nodes, defaults=AS_DEV, nats=nats)
        self._killed: set[int] = set()
        self.admin = self.new_admin()
        """Of the client that the results of all others are judged by."""

    def new_admin(self) -> AdminClient:
        """One that remembers no coordinator, since the others wait for a dead one."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    @property
    def copies(self) -> int:
        """Of each stream: one on every node."""
        return len(self.nodes)

    def leader_of(self, topic: str) -> int:
        """The node that leads its first partition; waits until there is one."""
        try:
            return self.leader((topic, 0))
        except TimeoutError as error:
            raise Failed(f"nobody leads {topic}") from error

    def folder_of(self, topic: str) -> Path:
        """Where the leader keeps its first partition."""
        return self[self.leader_of(topic)].data_dir / "streams" / topic / "0"

    def transaction_coordinator(self, transactional_id: str) -> int:
        """The node that a producer's transactions are led by."""
        topics = self.new_admin().list_topics(TRANSACTIONS_STREAM, timeout=TIMEOUT_S).topics
        count = len(topics[TRANSACTIONS_STREAM].partitions)
        return self.leader((TRANSACTIONS_STREAM, partition_of(transactional_id, count)))

    def configure_group(self, group: str, name: str, value: str) -> None:
        """A config of a share group, which need not be there yet."""
        self._command("group", "config", group, f"{name}={value}")

    def crash(self, number: int) -> None:
        self._killed.add(number)
        self.kill(number)

    def restore(self) -> None:
        """Start what has crashed, and wait until the whole cluster is in sync."""
        while self._killed:
            self.start(self._killed.pop())
        self._command("cluster", "check", "--wait", "--timeout", str(int(TIMEOUT_S)))
        self._command("cluster", "rebalance")

    def _command(self, *words: str) -> None:
        try:
            self.command(*words, timeout_s=TIMEOUT_S + 30)
        except AssertionError as error:
            raise Failed(str(error)) from error
