"""The clients under test, as their folders say it."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

CLIENTS: Final = Path(__file__).parent / "clients"

Protocol = Literal["kafka", "nats"]


@dataclass(frozen=True)
class Peer:
    """One row of the table: a client in one version."""

    name: str
    title: str
    folder: Path
    registry: str
    """Who has its packages: a name of ``registries.REGISTRIES``."""
    packages: tuple[str, ...]
    """As that registry's own client takes them; empty where a file in the folder lists them."""
    place: int
    """In the table, from the top."""
    without: tuple[str, ...] = ()
    """Files of the folder that this version has no use for."""
    speaks: Protocol = "kafka"


def peers(speaks: Protocol = "kafka") -> list[Peer]:
    """All of that protocol, in the order of their table."""
    found = (peer for peer in _found() if peer.speaks == speaks)
    return sorted(found, key=lambda peer: peer.place)


def _found() -> Iterator[Peer]:
    for path in sorted(CLIENTS.glob("*/peer.toml")):
        content = tomllib.loads(path.read_text())
        for name, row in content["rows"].items():
            packages = tuple(row.get("packages", ()))
            yield Peer(
                name,
                row["title"],
                path.parent,
                content["registry"],
                packages,
                row["place"],
                tuple(row.get("without", ())),
                content.get("speaks", "kafka"),
            )
