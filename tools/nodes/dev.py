"""``streamlog dev`` as a process: a cluster of nodes that the product itself starts."""

import json
from pathlib import Path
from typing import Any

from tools.nodes.server_process import ServerProcess, program, wait_until


class Dev(ServerProcess):
    """``streamlog dev`` on free ports; ``--nats URL`` and the like in ``options``."""

    def __init__(self, directory: Path, *options: str, nats_server: bool = True) -> None:
        """``nats_server``: with an embedded one, where ``options`` name none."""
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = directory / "data"
        ports = ("--nats-port", "0", "--kafka-port", "0", "--http-port", "0")
        if nats_server and "--nats" not in options:
            options = ("--nats-server", *options)
        command = [program("streamlog"), "dev", "--data-dir", str(self.data_dir), *ports, *options]
        super().__init__(command, directory / "dev.log")

    def start(self) -> None:
        self.spawn()
        self.wait_ready()

    def wait_ready(self) -> None:
        def ready() -> bool:
            self.check_running()
            return self.ready_file.exists()

        wait_until(ready, "streamlog dev is not ready")

    @property
    def ready_file(self) -> Path:
        return self.data_dir / "dev.json"

    @property
    def addresses(self) -> dict[str, Any]:
        """What ``dev.json`` says."""
        content: dict[str, Any] = json.loads(self.ready_file.read_text())
        return content

    @property
    def nats(self) -> str:
        return str(self.addresses["nats"])

    @property
    def kafka(self) -> str:
        return str(self.addresses["nodes"][0]["kafka"])

    @property
    def http(self) -> str:
        return str(self.addresses["nodes"][0]["http"])

    @property
    def node_pid(self) -> int:
        return int(self.addresses["nodes"][0]["pid"])
