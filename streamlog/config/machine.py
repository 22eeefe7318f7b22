"""The nodes of one machine: ``node.processes`` of them, out of one configuration.

Node ``i`` (the first one is 0) differs from the configuration in this alone:

- ``node.id`` is ``id + i``. So the ids of machines must lie at least ``processes`` apart.
- each port that is set, and each advertised one, is the port plus ``i``; 0 stays 0.
- ``node.data_dir`` is the configured folder for the first node, so that what a node alone has written
  stays where it is; for the others it is ``data_dir/node-ID``.
- ``node.rack`` is the machine's name, where none is configured.
- ``cluster.voters`` is the first node, where none are configured.

A machine that is lost takes all of its nodes along. So its nodes register with the id of its first
node as their *machine*, and the controller puts no two replicas of a partition on one machine.
"""

import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from streamlog.config.node_settings import Section
from streamlog.config.settings_loader import Settings, load_settings
from streamlog.errors import ConfigError

KEY: Final = "node.processes"
ID_MAX: Final = 2**31 - 1
PORT_MAX: Final = 65_535
ANY: Final = frozenset({"", "0.0.0.0", "::"})
"""Hosts of a listener on all addresses."""
PORTS: Final = (("kafka", "port"), ("http", "port"), ("nats_listen", "port"))
"""What each node listens on."""
ADVERTISED_PORTS: Final = (("kafka", "advertised_port"), ("nats_listen", "advertised_port"))
NODE_FILE: Final = "node.json"
_FOLDER: Final = re.compile(r"node-(\d+)")
_VOTER: Final = re.compile(r"(\d+)@(.+):(\d+)")


class MachineNode(NamedTuple):
    """A node, and the machine that it shares with others."""

    settings: Settings
    machine: int | None
    """The id of the machine's first node; None: the node has the machine for itself."""


def load_nodes(path: Path | None) -> tuple[MachineNode, ...]:
    """The nodes of a configuration: one, or as many as ``node.processes`` says. Raises ConfigError."""
    return nodes_of(load_settings(path))


def load_node(path: Path | None, node_id: int | None) -> MachineNode:
    """One of them, by default the first. Raises ConfigError."""
    return node_of(load_nodes(path), node_id)


def node_of(nodes: Sequence[MachineNode], node_id: int | None) -> MachineNode:
    """One of them, by default the first. Raises ConfigError."""
    if node_id is None:
        return nodes[0]
    for node in nodes:
        if node.settings.node.id == node_id:
            return node
    own = ", ".join(str(it.settings.node.id) for it in nodes)
    raise ConfigError("--node", f"{node_id} is no node of this configuration", f"name one of {own}")


def nodes_of(settings: Settings, machine_name: str | None = None) -> tuple[MachineNode, ...]:
    """``machine_name``: by default as the system tells. Raises ConfigError, with all others as its
    ``more``.
    """
    if settings.node.processes == 1:
        return (MachineNode(settings, None),)
    wrong = list(mistakes_of(settings))
    if wrong:
        wrong[0].more = tuple(wrong[1:])
        raise wrong[0]
    name = machine_name or socket.gethostname()
    return tuple(
        MachineNode(_node(settings, number, name), settings.node.id)
        for number in range(settings.node.processes)
    )


def mistakes_of(settings: Settings) -> Iterator[ConfigError]:
    """Why the nodes of one machine cannot be made of these settings. Pure."""
    if settings.node.processes == 1:
        return
    if settings.cluster.id is None:
        remedy = f"set it to the same text on every machine{_known_cluster(settings)}"
        yield ConfigError("cluster.id", f"is missing, and {KEY} is more than 1", remedy)
    if settings.node.id + settings.node.processes - 1 > ID_MAX:
        yield ConfigError("node.id", f"leaves no ids for {KEY}", "choose a lower one")
    yield from _wrong_ports(settings)
    yield from _wrong_voters(settings)


def folder_of(data_dir: Path, first: int, node_id: int) -> Path:
    """Where a node of the machine has its data."""
    return data_dir if node_id == first else data_dir / f"node-{node_id}"


def check_folders(settings: Settings) -> None:
    """Raises ConfigError for the folder of a node that this configuration would not start: what it
    keeps would be missing without a word.
    """
    node, data_dir = settings.node, settings.node.data_dir
    others = range(node.id + 1, node.id + node.processes)
    try:
        folders = sorted(data_dir.glob("node-*"), key=lambda it: (len(it.name), it.name))
    except OSError as error:  # a name that is too long for the file system
        problem = f"cannot be looked into: {error.strerror}"
        raise ConfigError("node.data_dir", problem, "name another folder") from error
    for folder in folders:
        match = _FOLDER.fullmatch(folder.name)
        if match is None or int(match[1]) in others or not _is_there(folder / NODE_FILE):
            continue
        started = f"nodes {node.id} to {others[-1]}" if others else f"node {node.id}"
        problem = f"is {node.processes} ({started}), and {folder} has data of node {match[1]}"
        remedy = (
            "start that node as well, or remove it and move its folder away (docs/operations.md)"
        )
        if int(match[1]) == node.id:
            remedy = f"name {folder} as node.data_dir, or move it away"
        raise ConfigError(KEY, problem, remedy)


def _is_there(file: Path) -> bool:
    """A folder that cannot be looked into counts as one that is used."""
    try:
        return file.exists()
    except OSError:
        return True


def _node(settings: Settings, number: int, machine_name: str) -> Settings:
    first = settings.node
    changed: dict[str, dict[str, Any]] = {
        "node": {
            "id": first.id + number,
            "data_dir": folder_of(first.data_dir, first.id, first.id + number),
            "rack": first.rack or machine_name,
        }
    }
    for section, key in (*PORTS, *ADVERTISED_PORTS):
        port = _port(settings, section, key)
        if port:
            changed.setdefault(section, {})[key] = port + number
    if not settings.cluster.voters:
        changed["cluster"] = {"voters": (_first_voter(settings),)}
    return settings.model_copy(
        update={name: _with(getattr(settings, name), keys) for name, keys in changed.items()}
    )


def _with(section: Section, keys: dict[str, Any]) -> Section:
    return section.model_copy(update=keys)


def _port(settings: Settings, section: str, key: str) -> int | None:
    port: int | None = getattr(getattr(settings, section), key)
    return port


def _first_voter(settings: Settings) -> str:
    kafka = settings.kafka
    host, port = kafka.advertised_host or kafka.host, kafka.advertised_port or kafka.port
    return f"{settings.node.id}@{f'[{host}]' if ':' in host else host}:{port}"


def _wrong_ports(settings: Settings) -> Iterator[ConfigError]:
    """Also of listeners on different addresses, unless none of them is every address."""
    last = settings.node.processes - 1
    if not settings.kafka.port:
        problem = f"is 0, and {KEY} is more than 1: the nodes could not find each other"
        yield ConfigError("kafka.port", problem, "set it")
    for section, key in (*PORTS, *ADVERTISED_PORTS):
        port = _port(settings, section, key)
        if port and port + last > PORT_MAX:
            problem = f"is {port}, and {KEY} needs the ports up to {port + last}"
            yield ConfigError(f"{section}.{key}", problem, f"choose {PORT_MAX - last} or less")
    for number, (section, key) in enumerate(PORTS):
        for other, other_key in PORTS[number + 1 :]:
            one, two = _port(settings, section, key), _port(settings, other, other_key)
            hosts = {getattr(settings, section).host, getattr(settings, other).host}
            apart = len(hosts) > 1 and hosts.isdisjoint(ANY)
            if one and two and abs(one - two) <= last and not apart:
                low, high = sorted(((one, f"{section}.{key}"), (two, f"{other}.{other_key}")))
                problem = (
                    f"is {high[0]}, and {low[1]} takes {low[0]} to {low[0] + last}"
                    f" ({settings.node.processes} processes)"
                )
                yield ConfigError(high[1], problem, f"choose {low[0] + last + 1} or more")


def _wrong_voters(settings: Settings) -> Iterator[ConfigError]:
    """A voter with an id of ours must be ours: else two machines share ids. What is wrong with the
    list itself is for others to say.
    """
    kafka = settings.kafka
    host, port = kafka.advertised_host or kafka.host, kafka.advertised_port or kafka.port
    first, count = settings.node.id, settings.node.processes
    for text in settings.cluster.voters:
        match = _VOTER.fullmatch(text)
        if match is None:
            continue
        node_id, voter_host, voter_port = int(match[1]), match[2].strip("[]"), int(match[3])
        is_ours = first <= node_id < first + count
        wanted = port + node_id - first
        if is_ours and voter_port not in (wanted, kafka.port + node_id - first):
            problem = (
                f"has {text}, and the ids {first} to {first + count - 1} are this machine's"
                f" ({KEY}): node {node_id} is at {host}:{wanted}"
            )
            remedy = (
                f"leave {count} ids or more between node.id of two machines, or correct the port"
            )
            yield ConfigError("cluster.voters", problem, remedy)
        elif not is_ours and voter_host == host and port <= voter_port < port + count:
            problem = f"has {text}, where node {first + voter_port - port} of this machine is"
            yield ConfigError("cluster.voters", problem, "correct its id or its address")


def _known_cluster(settings: Settings) -> str:
    """A node alone has given its cluster a name, which its folder keeps."""
    import json

    try:
        known = json.loads((settings.node.data_dir / NODE_FILE).read_text())["cluster_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f"; the folder of node {settings.node.id} belongs to {str(known)!r}: take that"
