"""One node that can be stopped, killed and started again, and the nats-server it listens to."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.connection import BenchmarkError, Connection
from benchmarks.streamlog_trio import AS_JETSTREAM
from benchmarks.trio import WHOLE_TIMEOUT_S
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import NatsServer

END_TIMEOUT_S: Final = 60.0


class LoneNode:
    """A cluster of one: the same folder and ports at each start; it is not started yet."""

    def __init__(self, directory: Path, *, settings: str = "") -> None:
        """``settings``: more of its file."""
        environment = compiled_once(directory / "bytecode")
        nats = NatsServer(directory)
        self._cluster = Cluster(
            directory,
            nodes=1,
            settings={"http": {"tls": False}, **tomllib.loads(settings)},
            defaults=AS_JETSTREAM,
            nats=nats,
            make_node=lambda number, folder: NodeProcess(number, folder, environment=environment),
        )
        self._node = self._cluster[1]
        self.nats = nats.address
        self.streams = self._node.data_dir / "streams"
        self.log = self._node.log
        nats.start()

    @property
    def kafka(self) -> str:
        return self._node.kafka

    @property
    def http_port(self) -> int:
        return self._node.http_port

    @property
    def node_pid(self) -> int:
        return self._node.pid

    def start(self, timeout_s: float = WHOLE_TIMEOUT_S) -> None:
        """Return when it is ready."""
        self._node.start(timeout_s)

    def end(self) -> None:
        """A clean stop."""
        code = self._node.stop(END_TIMEOUT_S)
        if code:
            raise BenchmarkError(f"the node ended with {code}; see {self.log}")

    def kill(self) -> None:
        """kill -9."""
        self._node.kill()

    def stop(self) -> None:
        self._cluster.close()

    def ask(self, verb: str, body: Mapping[str, object] | None = None) -> dict[str, object]:
        """One request of JetStream's API. Raises BenchmarkError if it is refused."""
        with Connection(self.nats) as connection:
            answer = connection.request(f"$JS.API.{verb}", json.dumps(body or {}).encode())
        if "error" in answer:
            raise BenchmarkError(f"streamlog: {verb}: {answer['error']}")
        return answer


def compiled_once(directory: Path) -> dict[str, str]:
    """An environment in which modules are compiled at the first start alone, as an installed
    package's are when it is installed, whatever ours says.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(directory)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment
