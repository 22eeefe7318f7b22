"""A runbook's commands, carried out on a real cluster as an operator would.

Paths and addresses of a page stand for the test's. ``systemctl`` starts and stops a node's process.
"""

import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from documentation.runbooks import Step, steps
from tests.cluster_cli import Cli
from tools.nodes.cluster import Cluster

DATA_DIR: Final = "/var/lib/streamlog"
CONFIG: Final = "/etc/streamlog/node.toml"
BACKUP: Final = "/backup"


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
