"""The command line, asked about a cluster from inside the tests' process."""

import json
from typing import Any, NamedTuple

from tests.in_process import streamlog
from tools.nodes.server_process import wait_until


class Done(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


class Cli:
    """``streamlog`` with the addresses of a cluster; in this process, for there is a lot to ask."""

    def __init__(self, dev: Any) -> None:
        self.nats = dev.nats
        self.servers = ",".join(node["kafka"] for node in dev.addresses["nodes"])

    def run(self, text: str, *more: str) -> Done:
        """The words of ``text``, and ``--bootstrap-server`` where the command has it."""
        words = [*text.split(), *more]
        command = " ".join(words[:2])
        asks = (
            words[:3] == ["backup", "restore", "stream"]
            or words[0] in {"cluster", "group", "consume", "stream"}
            or command == "backup create"
        )
        asks = asks and "--path" not in words
        if asks and "--bootstrap-server" not in words and command != "cluster recover-quorum":
            words += ["--bootstrap-server", self.servers]
        done = streamlog(words, environment={"NATS_URL": self.nats})
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, text: str, *more: str) -> str:
        done = self.run(text, *more)
        assert done.code == 0, done
        return done.out

    def json(self, text: str, *more: str) -> Any:
        return json.loads(self.ok(text, *more, "--json"))

    def refused(self, text: str, *more: str, code: int = 1) -> str:
        done = self.run(text, *more)
        assert done.code == code, done
        assert len(done.err.splitlines()) == 1, done
        return done.err

    def partition(self, stream: str, number: int = 0) -> dict[str, Any]:
        """As the cluster tells Kafka clients."""
        streams = {it["name"]: it["partitions"] for it in self.json("cluster info")["streams"]}
        found: dict[str, Any] = streams[stream][number]
        return found

    def wait_partition(self, stream: str, **wanted: object) -> None:
        """Nodes hear of a change one after the other."""
        wait_until(
            lambda: wanted.items() <= self.partition(stream).items(), f"{stream} is not {wanted}"
        )
