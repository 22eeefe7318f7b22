"""A program in the place of ``nats-server``: it becomes a node with a NATS port.

Tests of NATS clients start a ``nats-server`` themselves, with flags or a file. ``install`` writes a
program of that name into a folder for their PATH. It takes what ``nats_configuration`` translates,
writes a node's configuration, and executes ``streamlog serve`` in its own process, so that signals
and exit codes are the node's. Its folder is ``STAND_IN_FOLDER``/PORT, and what it refuses is a line
in ``STAND_IN_FOLDER``/refused.

Where the configuration names ``ports_file_dir``, a child of it writes the file with the ports that
nats-server would write, as soon as the node listens. If it names a port for monitoring, too, the
child goes on to answer there with the version that the node says: most tests ask for nothing else.
"""

import contextlib
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

from tests.peers.nats_configuration import (
    Configuration,
    NotOfferedError,
    Settings,
    Translation,
    from_flags,
)

FOLDER: Final = "STAND_IN_FOLDER"
REFUSED: Final = "refused"
REFUSED_EXIT: Final = 78
ITERATIONS: Final = 4096
PORTS_FILE_S: Final = 2.5
"""Tests give nats-server 5 s to write the file, and then as long to listen."""
MONITOR_LOOK_S: Final = 1.0
ROOT: Final = Path(__file__).parents[2]


def install(folder: Path) -> Path:
    """The folder for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nats-server"
    python = f"PYTHONPATH={ROOT} exec {sys.executable} -P {__file__}"
    program.write_text(f'#!/bin/sh\n{python} "$@"\n')
    program.chmod(0o755)
    return folder


def main() -> None:
    base = Path(os.environ[FOLDER])
    base.mkdir(parents=True, exist_ok=True)
    try:
        configuration = from_flags(sys.argv[1:])
        folder = prepare(base, configuration)
    except NotOfferedError as error:
        with (base / REFUSED).open("a") as refused:
            refused.write(f"{error}\n")
        print(f"not offered by streamlog: {error}", file=sys.stderr)
        sys.exit(REFUSED_EXIT)
    streamlog = str(Path(sys.executable).parent / "streamlog")
    log = os.open(folder / "node.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.execv(streamlog, [streamlog, "serve", "--config", str(folder / "node.toml")])


def prepare(base: Path, configuration: Configuration) -> Path:
    """The node's folder, with its configuration. Raises NotOfferedError."""
    cluster = configuration.get("cluster", {})
    if str(cluster.get("listen", "")).endswith(":-1"):
        cluster["listen"] = f"127.0.0.1:{free_port()}"
    node = Translation(configuration).node()
    settings = node.settings
    if len(cluster.get("routes", ())) > 1:
        voter = first_of(base / f"cluster-{cluster.get('name', '')}", settings["node"]["id"])
        settings["cluster"]["voters"] = [f"{voter}@127.0.0.1:{voter}"]
    listen = settings["nats_listen"]
    while int(listen.get("port", -1)) < 0:
        port = free_port()
        if not (base / str(port)).exists():  # else an earlier test's messages would be there
            listen["port"] = port
    port = listen["port"]
    folder = base / str(port)
    folder.mkdir(exist_ok=True)
    own: Settings = {
        "node": {"id": 1, "data_dir": str(folder / "data")},
        "kafka": {"port": free_port(port)},
        "http": {"port": free_port(port)},
        "nats": {"servers": [], "default_api_prefix": True},
        "logging": {"format": "console"},
    }
    if node.users:
        own |= _logins(folder, node.users)
    if node.token is not None:
        listen["token_file"] = str(folder / "token")
        _write_secret(folder / "token", f"{node.token}\n")
    if (tls := settings.get("tls")) is not None:
        for key in tls.keys() & {"cert", "key", "client_ca"}:
            tls[key] = str(_found(tls[key]))
    for section, keys in own.items():
        settings[section] = {**keys, **settings.get(section, {})}
    (folder / "node.toml").write_text(_toml(settings))
    if (ports := configuration.get("ports_file_dir")) is not None:
        told = {"nats": [f"nats://127.0.0.1:{port}"]}
        if cluster:
            told["cluster"] = [f"nats://{cluster['listen']}"]
        if "http" in configuration:
            told["monitoring"] = [f"http://127.0.0.1:{free_port()}"]
        tell_ports(Path(ports), port, told)
    return folder


def first_of(cluster: Path, node: int) -> int:
    """The member that was started first: where each names all others, it must not wait for them."""
    with contextlib.suppress(FileExistsError), cluster.open("x") as file:
        file.write(str(node))
    return int(cluster.read_text())


def _found(path: str) -> Path:
    """nats-py's files name others from one folder above the one that its tests are run in."""
    here = Path(path).resolve()
    return here if here.exists() else (Path("..") / path).resolve()


def _logins(folder: Path, users: Mapping[str, str]) -> Settings:
    """Of these users, and of nodes among themselves."""
    users_file, password_file = folder / "users", folder / "node-password"
    _write_users(users_file, users)
    _write_secret(password_file, "of all nodes\n")
    sasl = {
        "mechanisms": ["SCRAM-SHA-512"],
        "bootstrap_file": str(users_file),
        "node_user": "node",
        "node_password_file": str(password_file),
    }
    return {"sasl": sasl, "authorization": {"super_users": [f"User:{name}" for name in users]}}


def _write_users(path: Path, users: Mapping[str, str]) -> None:
    """As ``streamlog user add --bootstrap`` does, all at once."""
    from streamlog.authn.scram import Scram, credential_of, salted_password
    from streamlog.metadata.image.credential import Credentials, StoredCredential
    from streamlog.metadata.nodes.bootstrap_users import add_bootstrap_user

    for name, password in users.items():
        salt = secrets.token_bytes(24)
        salted = {it: salted_password(it, password, salt, ITERATIONS) for it in Scram}
        credentials: Credentials = {
            it.value: StoredCredential.of(credential_of(it, of_it, salt, ITERATIONS))
            for it, of_it in salted.items()
        }
        add_bootstrap_user(path, name, credentials)


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def tell_ports(folder: Path, port: int, told: Mapping[str, list[str]]) -> None:
    """When the node listens at ``port``. In a child, since this process is to become the node."""
    server = os.getpid()
    if os.fork() != 0:
        return
    try:
        deadline = time.monotonic() + PORTS_FILE_S
        while time.monotonic() < deadline and not _listens(port):
            time.sleep(0.02)
        partial = folder / f"nats-server_{server}.ports.part"
        partial.write_text(json.dumps(told))
        partial.rename(partial.with_suffix(""))
        for url in told.get("monitoring", ()):
            monitor(int(url.rpartition(":")[2]), port, server)
    finally:
        os._exit(0)


def monitor(own_port: int, port: int, server: int) -> None:
    """Answers ``/varz`` while the process ``server`` lives."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.path == "/varz"
            body = json.dumps({"version": version_at(port)} if is_known else {}).encode()
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", own_port), Handler) as listening:
        listening.timeout = MONITOR_LOOK_S
        while os.getppid() == server:
            listening.handle_request()


def version_at(port: int) -> str:
    """As the greeting of a NATS port names it."""
    with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as lines:
        return str(json.loads(lines.readline().partition(b" ")[2])["version"])


def free_port(taken: int = 0) -> int:
    """Another than ``taken``, chosen by the system: this process ends, as a node, too late to claim
    one of ``tools.nodes.ports``.
    """
    with socket.socket() as probe, socket.socket() as holder:
        with contextlib.suppress(OSError):  # else somebody listens there already
            holder.bind(("127.0.0.1", taken))
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _toml(settings: Mapping[str, Mapping[str, Any]]) -> str:
    return "".join(
        f"[{section}]\n" + "".join(f"{key} = {_value(value)}\n" for key, value in keys.items())
        for section, keys in settings.items()
    )


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_value(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main()
