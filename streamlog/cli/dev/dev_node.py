"""A node of the development cluster: its file, its process, its addresses."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import aiohttp
import tomli_w

from streamlog.cli.dev.child import Child
from streamlog.config import ENV_DELIMITER, ENV_PREFIX

HEADER: Final = (
    "# Written by `streamlog dev` at each start; `streamlog config init -` prints every key.\n\n"
)
PROBE_TIMEOUT_S: Final = 2.0
NO_LOGIN: Final[Mapping[str, str]] = {}


class DevNode:
    """Everything of it lies in ``directory``; the addresses are settled before it starts."""

    def __init__(
        self,
        number: int,
        directory: Path,
        host: str,
        nats_port: int,
        kafka_port: int,
        http_port: int,
        cluster: Mapping[str, object],
        default_replicas: int = 1,
    ) -> None:
        self.number = number
        self.nats = f"nats://{host}:{nats_port}"
        self.kafka = f"{host}:{kafka_port}"
        self.http = f"http://{host}:{http_port}"
        self.config = directory / "node.toml"
        self._directory = directory
        self._content: dict[str, dict[str, object]] = {
            "node": {"id": number, "data_dir": str(directory)},
            "nats_listen": {"host": host, "port": nats_port},
            "kafka": {"host": host, "port": kafka_port, "default_replicas": default_replicas},
            "http": {"host": host, "port": http_port},
            "groups": {"initial_rebalance_delay_ms": 0},
        }
        if cluster:
            self._content["cluster"] = dict(cluster)
        self._login: Mapping[str, str] = {}
        """Variables of its environment."""
        self._child: Child | None = None

    def write_config(
        self, nats: str | None, *, is_ours: bool, login: Mapping[str, str] = NO_LOGIN
    ) -> None:
        """``nats``: the server whose client it is. One of ours has no JetStream, so its bare API is for
        the nodes to answer. ``login``, which is not for files, goes into the environment.
        """
        self._login = login
        servers = [] if nats is None else [nats]
        self._content["nats"] = {"servers": servers, "default_api_prefix": is_ours}
        self._directory.mkdir(parents=True, exist_ok=True)
        content = {**self._content, "logging": {"format": "console"}}
        self.config.write_text(HEADER + tomli_w.dumps(content))

    async def start(self) -> Child:
        """As ``streamlog serve`` by hand, but what this file settles, the environment may not."""
        settled = {
            f"{ENV_PREFIX}{section}{ENV_DELIMITER}{key}".upper()
            for section, keys in self._content.items()
            for key in keys
        }
        env = {name: value for name, value in os.environ.items() if name.upper() not in settled}
        self._child = await Child.start(
            f"node-{self.number}",
            [sys.executable, "-m", "streamlog", "serve", "--config", str(self.config)],
            self._directory / "node.log",
            env={**env, **self._login},
            restart=f"streamlog serve --config {self.config}",
        )
        return self._child

    async def probe(self) -> str | None:
        """None when it is ready, else why not."""
        timeout = aiohttp.ClientTimeout(PROBE_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"{self.http}/readyz") as answer,
            ):
                reasons: dict[str, str] = (await answer.json())["reasons"]
        except (TimeoutError, aiohttp.ClientError, OSError):
            return "it does not answer yet"
        return "; ".join(reasons.values()) or None

    def entry(self) -> dict[str, object]:
        """Its line in ``dev.json``."""
        assert self._child is not None
        return {
            "id": self.number,
            "pid": self._child.pid,
            "nats": self.nats,
            "kafka": self.kafka,
            "http": self.http,
            "config": str(self.config),
        }
