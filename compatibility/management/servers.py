"""The two servers that are asked: a nats-server with JetStream, whose domain is the one that streamlog answers for,
and a node at its own NATS port, since consumers are served there.
"""

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compatibility.cluster import AS_DEV
from compatibility.outcome import Missing
from streamlog.cli.dev.die_with_parent import leashed
from tools.nodes.cluster import Cluster, NoNats

DOMAIN: Final = "streamlog"
START_TIMEOUT_S: Final = 30.0
_READY = re.compile(r"Listening for client connections on 127\.0\.0\.1:(\d+)")


@contextlib.contextmanager
def jetstream(folder: Path) -> Iterator[str]:
    """Its URL. Raises Missing where nats-server is not installed."""
    program = Path(sys.executable).parent / "nats-server"
    if not program.exists():
        raise Missing(f"{program.name} is not installed")
    folder.mkdir(parents=True)
    settings = {
        "host": "127.0.0.1",
        "port": -1,
        "server_name": "differential",
        "jetstream": {"domain": DOMAIN, "store_dir": str(folder / "store")},
    }
    config, log = folder / "nats.conf", folder / "nats.log"
    config.write_text(json.dumps(settings))
    command = leashed([str(program), "-c", str(config), "-l", str(log)])
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield f"nats://127.0.0.1:{_port(log, process)}"
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def streamlog(folder: Path) -> Iterator[str]:
    """The URL of the port of a node that is alone."""
    settings = {**AS_DEV, "nats_listen": {}}
    with Cluster(folder, nodes=1, defaults=settings, nats=NoNats()) as cluster:
        yield cluster[1].port_url


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        text = log.read_text() if log.exists() else ""
        found = _READY.search(text)
        if found and "Server is ready" in text:
            return int(found[1])
        time.sleep(0.05)
    raise TimeoutError("nats-server is not ready")
