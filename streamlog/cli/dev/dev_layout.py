"""Where the nodes of a development cluster lie and listen, at this start as at those before."""

import random
import socket
import tomllib
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamlog.cli.dev.dev_node import DevNode
from streamlog.errors import ConfigError

HOST: Final = "127.0.0.1"
CLUSTER_ID: Final = "dev"
DEFAULT_REPLICAS: Final = 3
"""Of a topic that leaves it open, where there are so many nodes."""


@dataclass(frozen=True)
class DevPlan:
    """What was asked for on the command line."""

    directory: Path
    nodes: int
    nats: str | None
    """Of a NATS server that is there."""
    nats_server: bool
    """To start one."""
    nats_port: int
    kafka_port: int
    http_port: int


CHOICES: Final = range(12_000, 22_000)
"""Below the ports that systems give to outgoing connections, which come and go."""

PORT_MAX: Final = 65_535


class Ports:
    """Those of one development cluster. A free port that it chooses is no other cluster's that starts meanwhile: the
    node listens only seconds later, so the process holds the UDP port of the same number, which the kernel gives to one
    process at a time and takes back when the process ends.
    """

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.named: set[int] = set()
        """Some are settled later: they are never chosen."""
        self._claims: list[weakref.finalize[[], Ports]] = []

    def settle(self, option: str, host: str, port: int) -> int:
        """``port`` if it is free, some free one for 0. Raises ConfigError that names ``option``."""
        if port > PORT_MAX:
            raise ConfigError(option, f"there is no port {port}", "choose a lower one")
        if port:
            if port in self.taken or not _is_free(host, port):
                remedy = "stop what uses it or choose another (0: a free one)"
                raise ConfigError(option, f"port {port} is in use", remedy)
            self.taken.add(port)
            return port
        for choice in random.sample(CHOICES, 1_000):
            if choice not in self.taken | self.named and self._claim(host, choice):
                self.taken.add(choice)
                return choice
        raise ConfigError(option, "no free port was found", "name one")

    def close(self) -> None:
        """Let other clusters choose them. May be called again."""
        for let_go in self._claims:
            let_go()
        self._claims.clear()

    def _claim(self, host: str, port: int) -> bool:
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind((host, port))
        except OSError:
            claim.close()
            return False
        self._claims.append(weakref.finalize(self, claim.close))
        return _is_free(host, port)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def lay_out(plan: DevPlan, ports: Ports) -> list[DevNode]:
    """The nodes, their ports settled (and taken in ``ports``), and nothing written yet.

    Raises ConfigError for a port that is not to be had, and for what does not fit the folder:
    another number of nodes, or ports on which its voters would not find each other any more.
    """
    _check_number(plan)
    numbers = range(1, plan.nodes + 1)
    for named in (plan.nats_port, plan.kafka_port, plan.http_port):
        if named:
            ports.named.update(range(named, named + plan.nodes + 1))
    folders = {number: plan.directory / f"node-{number}" for number in numbers}
    nats = {number: _nats_port(plan, number, ports) for number in numbers}
    kafka = {number: _kafka_port(plan, number, folders[number], ports) for number in numbers}
    http = {
        number: ports.settle("--http-port", HOST, plan.http_port and plan.http_port + number - 1)
        for number in numbers
    }
    voters = [f"{number}@{HOST}:{port}" for number, port in kafka.items()]
    cluster = {"id": CLUSTER_ID, "voters": voters} if plan.nodes > 1 else {}
    return [
        DevNode(
            number,
            folders[number],
            HOST,
            nats[number],
            kafka[number],
            http[number],
            cluster,
            min(plan.nodes, DEFAULT_REPLICAS),
        )
        for number in numbers
    ]


def _check_number(plan: DevPlan) -> None:
    there = len(list(plan.directory.glob("node-*/node.toml")))
    if there not in (0, plan.nodes):
        nodes = "1 node" if there == 1 else f"{there} nodes"
        problem = f"{plan.directory} holds a cluster of {nodes}, not of {plan.nodes}"
        raise ConfigError("--nodes", problem, f"say --nodes {there} or name another folder")


def _nats_port(plan: DevPlan, number: int, ports: Ports) -> int:
    """The nats-server has the first one, where one is started."""
    wanted = plan.nats_port and plan.nats_port + number - (0 if plan.nats_server else 1)
    return ports.settle("--nats-port", HOST, wanted)


def _kafka_port(plan: DevPlan, number: int, folder: Path, ports: Ports) -> int:
    """Several nodes find each other where they were found before: 0 stands for these ports."""
    wanted = plan.kafka_port and plan.kafka_port + number - 1
    known = _known_port(folder / "node.toml") if plan.nodes > 1 else None
    if known is not None and wanted not in (0, known):
        problem = f"the nodes of {plan.directory} know each other by other ports"
        remedy = "say --kafka-port 0 to keep these, or name another folder"
        raise ConfigError("--kafka-port", problem, remedy)
    return ports.settle("--kafka-port", HOST, known or wanted)


def _known_port(config: Path) -> int | None:
    try:
        return int(tomllib.loads(config.read_text())["kafka"]["port"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        problem = f"{config} cannot be understood"
        raise ConfigError("--data-dir", problem, "correct it or name another folder") from None
