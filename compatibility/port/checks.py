"""The columns: what each client does at the port."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from compatibility.cells import without_places
from compatibility.outcome import Failed, NotOffered, Outcome, one_line
from compatibility.program import Line, Program
from compatibility.registries import Installed
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import Settings

NODES: Final = 3
AS_DEV: Final[Settings] = {
    "nats": {"default_api_prefix": True},
    "nats_listen": {},
    "logging": {"format": "console"},
}
"""What ``streamlog dev`` changes of the defaults."""


class Check(NamedTuple):
    """A column. ``name`` is the program's verb."""

    name: str
    title: str
    what: str
    """For the page."""


CHECKS: Final = (
    Check("connect", "connect", "it connected, and flushed"),
    Check("pubsub", "publish, subscribe", "by subject, by `*`, by `>`; binary and empty, in order"),
    Check(
        "queue",
        "queue group",
        "each message went to one of two members at one node, and each had some",
    ),
    Check("headers", "headers", "with several values or one with spaces, and with a colon"),
    Check("request", "request", "50 at once were answered, each with its own answer"),
    Check("no_responders", "no responders", "a request without a responder failed at once"),
    Check("request_many", "request many", "three answered one request"),
    Check("unsubscribe", "auto-unsubscribe", "after 3 of 10 messages there were no more"),
    Check("drain", "drain", "what had been delivered was read before the connection closed"),
    Check("max_payload", "max payload", "one byte more was refused, the largest message came back"),
    Check("reconnect", "node killed, restarted", "by SIGKILL; subscriptions were there again"),
    Check("failover", "node killed, another one", "the client had learned it from the first node"),
    Check("pubacks", "PubAcks", "of 200 messages on their way at once, and of a repeated one"),
    Check("streams", "streams", "created, described, listed, a message read, purged, deleted"),
    Check("key_value", "key-value", "put, get, update of a revision, delete"),
)
KILLING: Final = ("reconnect", "failover")
AT_ONE_NODE: Final = (*KILLING, "queue")
"""Of the others clients choose a node at random. A member at the node of the publisher is preferred."""


class Scene:
    """``with Scene(folder) as scene``: the nodes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trio = Cluster(folder / "trio", nodes=NODES, defaults=AS_DEV, nats=NoNats())
        self._lone = Cluster(folder / "lone", nodes=1, defaults=AS_DEV, nats=NoNats())

    def __enter__(self) -> Self:
        try:
            self._trio.__enter__()
            self._lone.__enter__()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._lone.close()
        self._trio.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, installed: Installed, name: str, check: Check) -> Outcome:
        """``name``: no other cell's."""
        try:
            with self._started(installed, name, check) as program:
                if check.name in KILLING:
                    _told(program, "ready")
                    self._kill(check)
                _told(program, "done")
        except NotOffered as reason:
            return Outcome("not offered", one_line(str(reason)))
        except Failed as reason:
            return Outcome("fail", without_places(str(reason), str(self._folder)))
        finally:
            self._restore()
        return Outcome("pass")

    @contextmanager
    def _started(self, installed: Installed, name: str, check: Check) -> Iterator[Program]:
        nodes = self._lone.nodes if check.name == "reconnect" else self._trio.nodes
        urls = [node.port_url for node in nodes.values()]
        servers = urls[0] if check.name in AT_ONE_NODE else ",".join(urls)
        command = (*installed.command, servers, check.name, "{}")
        log = self._folder / f"{name}.log"
        with Program(command, log, installed.environment) as program:
            yield program

    def _kill(self, check: Check) -> None:
        if check.name == "reconnect":
            self._lone.restart(1)
        else:
            self._trio.kill(1)

    def _restore(self) -> None:
        for cluster in (self._lone, self._trio):
            ended = [it.number for it in cluster.nodes.values() if not it.is_running()]
            if ended:
                cluster.start(*ended)


def _told(program: Program, word: str) -> Line:
    line = program.line()
    if line is None or word not in line:
        raise Failed(f"it said {line} instead of {word}")
    return line
