"""Very many streams on one node."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.case import Case, Measurement, Target, Variant
from benchmarks.cases import COUNTS, RATE, measured
from benchmarks.side import JetStream, Port, Sides, Streamlog, create_streams

STREAMS: Final = 10_000
NAME: Final = "many"
SHARE: Final = 0.25
"""Of a usual run's messages: where each goes elsewhere, it takes longer."""
BY_CHANCE: Final = "each message to one by chance"

Server = JetStream | Port | Streamlog


class ManyStreams:
    """Servers of the case's own, each with as many streams; they go with the case."""

    def __init__(self, sync: str, servers: dict[str, Callable[[Path], Server]]) -> None:
        self._sync = sync
        self._servers = servers
        self._sides: dict[str, Server] = {}
        self._streams = 0

    def prepare(self, sides: Sides, scale: float) -> None:
        self._streams = max(2, int(STREAMS * scale))
        for name, create in self._servers.items():
            side = self._sides[name] = sides.own(f"{NAME}-{name}", create)
            sync = None if isinstance(side, JetStream) else self._sync
            create_streams(side, self._streams, NAME, sync=sync)

    def clear(self, sides: Sides) -> None:
        for name in self._servers:
            sides.drop(f"{NAME}-{name}")

    def publishing(
        self, name: str, *, scattered: bool, share: float = SHARE
    ) -> Callable[[Sides, float], Measurement]:
        """To the server of that name."""

        def run(sides: Sides, scale: float) -> Measurement:
            side = self._sides[name]
            count = str(int(COUNTS[100] * share * scale))
            subject = f"{NAME}." if scattered else f"{NAME}.0"
            arguments = ["--nats", side.nats, "--subject", subject, "--count", count]
            arguments += ["--subjects", str(self._streams if scattered else 1)]
            return measured(sides, side, "publisher", "acked", *arguments)

        return run


def many_case(sync: str) -> Case[Sides]:
    load = ManyStreams(sync, {"streamlog": Streamlog})
    variants = (
        Variant("to one of them", load.publishing("streamlog", scattered=False)),
        Variant(BY_CHANCE, load.publishing("streamlog", scattered=True), (Target(RATE, 0.5),)),
    )
    title = f"10,000 streams on one node, every message acked, 100 B, sync={sync}"
    return Case(f"many-{sync}", title, (RATE,), variants, load.prepare, load.clear)


def port_case(sync: str) -> Case[Sides]:
    load = ManyStreams(sync, {"jetstream": JetStream, "port": Port})
    one, chance = f"streamlog's port, to one of them, sync={sync}", f"streamlog's port, {BY_CHANCE}"
    variants = (
        Variant(f"JetStream, {BY_CHANCE}", load.publishing("jetstream", scattered=True)),
        Variant(one, load.publishing("port", scattered=False, share=3 * SHARE)),
        Variant(
            f"{chance}, sync={sync}",
            load.publishing("port", scattered=True),
            (Target(RATE, 1.0), Target(RATE, 0.5, beside=one)),
        ),
    )
    title = f"10,000 streams at the port, every message acked, 100 B, sync={sync}"
    return Case(f"port-many-{sync}", title, (RATE,), variants, load.prepare, load.clear)


CASES: Final = (*map(many_case, ("os", "commit")), *map(port_case, ("os", "commit")))
