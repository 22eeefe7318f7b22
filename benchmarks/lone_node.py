"""One node that can be stopped, killed and started again, and the nats-server it listens to."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.connection import BenchmarkError, Connection
from benchmarks.ports import free_port
from benchmarks.processes import binary
from benchmarks.trio import HOST, WHOLE_TIMEOUT_S, Member, wait_for_port, wait_ready

END_TIMEOUT_S: Final = 60.0


class LoneNode:
    """``streamlog serve``: the same folder and ports at each start; it is not started yet."""

    def __init__(self, directory: Path, *, settings: str = "") -> None:
        """``settings``: more of its file."""
        directory.mkdir(parents=True)
        port, self._kafka, self._http = free_port(), free_port(), free_port()
        self.nats = f"{HOST}:{port}"
        router = [binary("nats-server"), "-a", HOST, "-p", str(port)]
        self._router = Member(router, directory / "nats.log")
        self._router.start()
        wait_for_port(port)
        self.streams = directory / "node-1" / "streams"
        config = directory / "node.toml"
        config.write_text(
            f'[node]\nid = 1\ndata_dir = "{directory / "node-1"}"\n'
            f'[nats]\nservers = ["nats://{self.nats}"]\ndefault_api_prefix = true\n'
            f"[kafka]\nport = {self._kafka}\n[http]\nport = {self._http}\ntls = false\n{settings}"
        )
        command = [binary("streamlog"), "serve", "--config", str(config)]
        self._node = Member(command, directory / "node.log", compiled_once(directory / "bytecode"))

    @property
    def kafka(self) -> str:
        return f"{HOST}:{self._kafka}"

    @property
    def node_pid(self) -> int:
        assert self._node.process is not None, "started"
        return int(self._node.process.pid)

    def start(self, timeout_s: float = WHOLE_TIMEOUT_S) -> None:
        """Return when it is ready."""
        self._node.start()
        wait_ready(self._node, HOST, self._http, timeout_s)

    def end(self) -> None:
        """A clean stop."""
        assert self._node.process is not None, "started"
        self._node.process.send_signal(signal.SIGTERM)
        code = self._node.process.wait(END_TIMEOUT_S)
        if code:
            raise BenchmarkError(f"the node ended with {code}; see {self._node.log}")

    def kill(self) -> None:
        """kill -9."""
        self._node.kill()

    def stop(self) -> None:
        self._node.kill()
        self._router.kill()

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
