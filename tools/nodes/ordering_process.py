"""``streamlog ledger serve`` as a real process: the same folder and port at each start."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamlog.ledger.storage.folder import blocks_of, chain_folder
from tools.nodes.ports import free_port
from tools.nodes.server_process import StreamlogProcess, http_get, program, wait_until


class OrderingProcess(StreamlogProcess):
    """One node of one channel."""

    def __init__(
        self,
        name: str,
        directory: Path,
        channel: str,
        *options: str,
        servers: Callable[[], str],
        nats: str,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.channel = channel
        self.directory = directory / "blocks"
        self.http_port = free_port()
        self.is_told_channel = True
        """At the next start; else it serves all that its folder has."""
        self._servers = servers
        self._options = (*options, "--nats-server", nats)
        super().__init__([], directory / "node.log")

    def start(self) -> None:
        """Return when its channel can be read."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        command = [program("streamlog"), "ledger", "serve", "--node", self.name]
        command += ["--dir", str(self.directory)]
        if self.is_told_channel:
            command += ["--channel", self.channel]
        command += ["--http-port", str(self.http_port), "--bootstrap-server", self._servers()]
        self.command = [*command, *self._options]
        super().spawn()

    def wait_ready(self) -> None:
        def ready() -> bool:
            self.check_running()
            return self.http("/readyz")[0] == 200

        wait_until(ready, f"ordering node {self.name} is not ready")

    def http(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 where nobody answers."""
        return http_get(f"http://127.0.0.1:{self.http_port}{path}")

    def metrics(self) -> dict[str, float]:
        """Samples by their names and labels as they are written, without the channel."""
        found = {}
        for line in self.http("/metrics")[1].splitlines():
            if line.startswith("streamlog_ledger_"):
                name, _, value = line.rpartition(" ")
                short = name.removeprefix("streamlog_ledger_")
                short = short.replace(f'channel="{self.channel}",', "")
                found[short.replace(f'{{channel="{self.channel}"}}', "")] = float(value)
        return found

    @property
    def height(self) -> int:
        """By its metrics; -1 while it is away."""
        return int(self.metrics().get("height", -1))

    def blocks(self) -> list[bytes]:
        """What its files have."""
        folder, _ = chain_folder(self.directory, self.channel)
        return list(blocks_of(folder))

    def segments(self) -> dict[str, bytes]:
        """Its files of blocks, as they are."""
        folder, _ = chain_folder(self.directory, self.channel)
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}

    def verify(self) -> dict[str, Any]:
        """What ``streamlog ledger verify`` says of its files."""
        command = [program("streamlog"), "ledger", "verify", str(self.directory), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
