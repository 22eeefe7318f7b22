"""``streamlog dev`` in a folder of its own, from start to stop."""

import asyncio
import json
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from streamlog.cli.dev.child import Child

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 45.0


class NotStarted(Exception):
    """The servers ended before they were ready."""


@dataclass(frozen=True)
class Servers:
    """Where everything answers."""

    nats: str
    kafka: str
    http: str
    data_dir: Path
    """The node's own."""


@asynccontextmanager
async def running_servers(folder: Path, *, default_ports: bool) -> AsyncIterator[Servers]:
    """A nats-server and one node, on free ports; both have ended when this returns."""
    command = [sys.executable, "-m", "streamlog", "dev", "--data-dir", str(folder)]
    if not default_ports:
        for name in ("nats", "kafka", "http"):
            command += [f"--{name}-port", "0"]
    child = await Child.start("streamlog dev", command, folder / "dev.log")
    try:
        yield await _ready(child, folder / "dev.json")
    finally:
        await child.stop(STOP_TIMEOUT_S)


async def _ready(child: Child, path: Path) -> Servers:
    async with asyncio.timeout(START_TIMEOUT_S):
        while (servers := _read_state(path)) is None:
            if child.exit_code is not None:
                raise NotStarted(f"{child.name}: {child.last_line()}")
            await asyncio.sleep(0.05)
    return servers


def _read_state(path: Path) -> Servers | None:
    """What ``streamlog dev`` writes when everything is ready; None before that."""
    if not path.exists():
        return None
    state = json.loads(path.read_text())
    node = state["nodes"][0]
    config = tomllib.loads(Path(node["config"]).read_text())
    return Servers(state["nats"], node["kafka"], node["http"], Path(config["node"]["data_dir"]))
