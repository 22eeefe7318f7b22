"""What the cases need of a server under test."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar
from unittest.mock import patch

from benchmarks.asking import Question, ask_all
from benchmarks.connection import BenchmarkError, Connection
from benchmarks.kafka_broker import KafkaBroker
from streamlog.cli.dev import embedded_nats
from tools.nodes.dev import Dev
from tools.nodes.server_process import ServerProcess, program, wait_until

Server = TypeVar("Server", bound="Stoppable")

STREAM = "bench"
SUBJECTS = "bench.>"
CREATIONS_AT_ONCE = 50
ACK_PENDING_MAX: Final = 10_000
"""Of a consumer that is acknowledged: by default it waits after 1,000 messages."""
PORTS_TIMEOUT_S: Final = 300.0
"""It restores its consumers first: 100,000 take a minute."""


class Side(Protocol):
    """One of the two: started, it has a NATS address, and streams are made in JetStream's way."""

    name: str
    nats: str
    pids: Sequence[int]

    def stop(self) -> None: ...


class JetStream:
    """nats-server with JetStream, file storage, everything else its default.

    ``tuned``: with what ``streamlog dev`` gives to its nats-server.
    """

    name = "JetStream"

    def __init__(self, directory: Path, *, sync_always: bool = False, tuned: bool = False) -> None:
        directory.mkdir(parents=True)
        config = directory / "nats.conf"
        always = ", sync_interval: always" if sync_always else ""
        config.write_text(
            f'listen: "127.0.0.1:-1"\nports_file_dir: "{directory}"\n'
            # A push consumer knows no back-pressure: at its default of 64 MB the server cuts off a
            # reader that does not take 400 MB as fast as they are pushed.
            f"max_pending: 1GB\n"
            f'jetstream {{ store_dir: "{directory}/store"{always} }}\n'
            f"{embedded_nats.SETTINGS if tuned else ''}"
        )
        command = [program("nats-server"), "-c", str(config)]
        env = embedded_nats.environment() if tuned else None
        self._directory = directory
        self._process = ServerProcess(command, directory / "log", env)
        self._begin()

    def _begin(self) -> None:
        self._process.spawn()
        ports = self._directory / f"nats-server_{self._process.pid}.ports"

        def written() -> bool:
            self._process.check_running()
            return ports.exists() and ports.stat().st_size > 0

        wait_until(written, "nats-server names its ports", PORTS_TIMEOUT_S)
        self.nats = json.loads(ports.read_text())["nats"][0].removeprefix("nats://")
        self.pids: Sequence[int] = (self._process.pid,)

    def stop(self) -> None:
        self._process.end()


class Streamlog:
    """``streamlog dev``: an embedded nats-server without JetStream, and one node."""

    name = "streamlog"

    def __init__(self, directory: Path) -> None:
        self._dev = Dev(directory)
        self._dev.start()
        self.nats = self._dev.nats.removeprefix("nats://")
        self.kafka = self._dev.kafka
        self.node_pid = self._dev.node_pid
        self.http = self._dev.http.removeprefix("http://")
        self.nats_pid = _nats_server_of(self._dev.pid)
        self.pids: Sequence[int] = (self.node_pid, self.nats_pid)
        self.streams = directory / "data" / "node-1" / "streams"

    def stop(self) -> None:
        self._dev.end()


class Port:
    """``streamlog dev``: one node with a NATS port, and nothing else."""

    name = "streamlog's port"

    def __init__(self, directory: Path, **settings: str) -> None:
        """``settings``: of the node, as variables of the environment name them."""
        self._dev = Dev(directory, nats_server=False)
        self._settings = settings
        self._begin()

    def _begin(self) -> None:
        with patch.dict(os.environ, self._settings):
            self._dev.start()
        self.nats = self._dev.nats.removeprefix("nats://")
        self.kafka = self._dev.kafka
        self.http = self._dev.http.removeprefix("http://")
        self.pids: Sequence[int] = (self._dev.node_pid,)

    def stop(self) -> None:
        self._dev.end()


class Stoppable(Protocol):
    """A server that runs."""

    def stop(self) -> None: ...


class Sides:
    """The servers of one run, started when first asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: dict[str, Stoppable] = {}

    @property
    def jetstream(self) -> JetStream:
        side = self._start("jetstream", JetStream)
        assert isinstance(side, JetStream)
        return side

    @property
    def jetstream_always(self) -> JetStream:
        side = self._start("jetstream-always", lambda path: JetStream(path, sync_always=True))
        assert isinstance(side, JetStream)
        return side

    @property
    def jetstream_tuned(self) -> JetStream:
        side = self._start("jetstream-tuned", lambda path: JetStream(path, tuned=True))
        assert isinstance(side, JetStream)
        return side

    @property
    def streamlog(self) -> Streamlog:
        side = self._start("streamlog", Streamlog)
        assert isinstance(side, Streamlog)
        return side

    @property
    def port(self) -> Port:
        side = self._start("port", Port)
        assert isinstance(side, Port)
        return side

    @property
    def port_applied(self) -> Port:
        """It confirms acknowledgements as JetStream does."""
        side = self._start(
            "port-applied", lambda path: Port(path, STREAMLOG_CONSUMERS__CONFIRM_ACKS="applied")
        )
        assert isinstance(side, Port)
        return side

    @property
    def kafka(self) -> KafkaBroker:
        side = self._start("kafka", KafkaBroker)
        assert isinstance(side, KafkaBroker)
        return side

    def stop(self) -> None:
        for name in list(self._started):
            self.drop(name)

    def own(self, name: str, create: Callable[[Path], Server]) -> Server:
        """A server for one case alone; ``drop`` ends it and removes its folder."""
        self._started[name] = server = create(self.directory / name)
        return server

    def drop(self, name: str) -> None:
        server = self._started.pop(name, None)
        if server is not None:
            server.stop()
            shutil.rmtree(self.directory / name, ignore_errors=True)

    def _start(self, name: str, create: Callable[[Path], Stoppable]) -> Stoppable:
        if name not in self._started:
            self._started[name] = create(self.directory / name)
        return self._started[name]


def _nats_server_of(parent: int) -> int:
    """The embedded nats-server: the one child of ``streamlog dev`` of that name."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for child in children:
        if Path(f"/proc/{child}/comm").read_text().strip() == "nats-server":
            return int(child)
    raise BenchmarkError("streamlog dev has no nats-server among its children")


def create_stream(side: Side, *, sync: str | None = None, partitions: int = 1) -> None:
    """A fresh stream; both sides answer the same request."""
    config: dict[str, object] = {
        "name": STREAM,
        "subjects": [SUBJECTS],
        "storage": "file",
        "retention": "limits",
        "num_replicas": 1,
    }
    metadata = {"streamlog.sync": sync} if sync else {}
    if partitions > 1:
        metadata["streamlog.partitions"] = str(partitions)
        config["subjects"] = [STREAM]  # the others take numbers at its end
    if metadata:
        config["metadata"] = metadata
    _ask(side, f"$JS.API.STREAM.CREATE.{STREAM}", config)


def create_streams(side: Side, count: int, prefix: str, *, sync: str | None = "os") -> None:
    """So many streams, named and fed by the prefix and a number; some requests at a time."""
    ask_all(
        side.nats,
        (_creation(prefix, number, sync) for number in range(count)),
        CREATIONS_AT_ONCE,
    )


def _creation(prefix: str, number: int, sync: str | None) -> Question:
    name = f"{prefix}{number}"
    config: dict[str, object] = {"name": name, "subjects": [f"{prefix}.{number}"]}
    config |= {"storage": "file", "num_replicas": 1}
    if sync is not None:
        config["metadata"] = {"streamlog.sync": sync}
    return Question(f"STREAM.CREATE.{name}", json.dumps(config).encode())


def delete_stream(side: Side, name: str = STREAM) -> None:
    _ask(side, f"$JS.API.STREAM.DELETE.{name}")


def create_push_consumer(
    side: Side, deliver_subject: str, name: str = "push", *, ack_policy: str = "none"
) -> None:
    """A consumer that starts to send as soon as somebody listens."""
    create_consumer(side, name, ack_policy=ack_policy, deliver_subject=deliver_subject)


def create_consumer(side: Side, name: str, **fields: object) -> None:
    """A durable one that begins with the first message."""
    config = {
        "deliver_policy": "all",
        "ack_policy": "none",
        "replay_policy": "instant",
        "durable_name": name,
        **fields,
    }
    if config["ack_policy"] != "none":
        config["max_ack_pending"] = ACK_PENDING_MAX
    body = {"stream_name": STREAM, "config": config}
    _ask(side, f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{name}", body)


def delete_consumer(side: Side, name: str) -> None:
    _ask(side, f"$JS.API.CONSUMER.DELETE.{STREAM}.{name}")


def _ask(side: Side, subject: str, body: Mapping[str, object] | None = None) -> None:
    with Connection(side.nats) as connection:
        answer = connection.request(subject, json.dumps(body).encode() if body else b"")
    if "error" in answer:
        raise BenchmarkError(f"{side.name}: {subject}: {answer['error']}")
