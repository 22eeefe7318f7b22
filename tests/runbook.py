"""A runbook's commands, carried out on a real cluster as an operator would.

In a block marked ``console`` a line ``$ COMMAND`` is for any machine, ``node-2$ COMMAND`` for that
node's own: paths and addresses stand for the test's, ``systemctl`` starts and stops its process.
"""

import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NamedTuple

from tests.cluster import Cluster
from tests.cluster_cli import Cli

FOLDER: Final = Path(__file__).parents[1] / "docs" / "runbooks"
DATA_DIR: Final = "/var/lib/streamlog"
CONFIG: Final = "/etc/streamlog/node.toml"
BACKUP: Final = "/backup"

_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINE: Final = re.compile(r"(?:node-(\d))?\$ (.+)")


class Step(NamedTuple):
    """One command; on a node's machine, or on any."""

    node: int | None
    command: str


def steps(text: str) -> Iterator[Step]:
    """All commands of a page, in their order; what follows a ``#`` is a comment."""
    for block in _BLOCK.findall(text):
        for line in block.splitlines():
            match = _LINE.fullmatch(line)
            if match:
                yield Step(
                    int(match[1]) if match[1] else None, match[2].partition("  #")[0].strip()
                )


def pages() -> list[Path]:
    return sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")


class Operator:
    """Follows a page."""

    def __init__(self, cluster: Cluster, backups: Path) -> None:
        self._cluster = cluster
        self._backups = backups
        addresses = {"nodes": [{"kafka": node.kafka} for node in cluster.nodes.values()]}
        self._cli = Cli(SimpleNamespace(nats=cluster.nats.url, addresses=addresses))

    def follow(self, page: Path) -> None:
        self.carry_out(steps(page.read_text()))

    def carry_out(self, some: Iterable[Step]) -> None:
        for step in some:
            command = self._translated(step)
            if step.node is None:
                for node in self._cluster.running():
                    node.wait_ready()
            program = shlex.split(command)[0]
            if program == "streamlog":
                self._streamlog(command)
            elif program == "systemctl":
                assert step.node is not None, step
                self._systemctl(step.node, command)
            else:
                subprocess.run(command, shell=True, check=True, timeout=30)

    def _translated(self, step: Step) -> str:
        command = step.command.replace(BACKUP, str(self._backups / "backup"))
        for number, node in self._cluster.nodes.items():
            command = command.replace(f"node-{number}:9092", node.kafka)
        if step.node is not None:
            node = self._cluster[step.node]
            command = command.replace(DATA_DIR, str(node.data_dir))
            command = command.replace(CONFIG, str(node.config))
        return command

    def _streamlog(self, command: str) -> None:
        _, *words = shlex.split(command)
        done = self._cli.run(" ".join(words))
        assert done.code == 0, (command, done)

    def _systemctl(self, number: int, command: str) -> None:
        node = self._cluster[number]
        verb = shlex.split(command)[1]
        if verb in {"stop", "restart", "disable"} and node.is_running():
            node.ask_to_stop()
            node.wait(60)
        if verb in {"start", "restart"}:
            node.spawn()
