"""Very many streams on one node."""

from collections.abc import Callable
from typing import Final

from benchmarks.case import Case, Measurement, Target, Variant
from benchmarks.cases import COUNTS, RATE, measured
from benchmarks.side import Sides, Streamlog, create_streams

STREAMS: Final = 10_000
NAME: Final = "many"
SHARE: Final = 0.25
"""Of a usual run's messages: where each goes elsewhere, it takes longer."""


class ManyStreams:
    """A node of its own, which goes with the case."""

    def __init__(self, sync: str) -> None:
        self._sync = sync
        self._side: Streamlog | None = None
        self._streams = 0

    def prepare(self, sides: Sides, scale: float) -> None:
        self._streams = max(2, int(STREAMS * scale))
        self._side = sides.own(NAME, Streamlog)
        create_streams(self._side, self._streams, NAME, sync=self._sync)

    def clear(self, sides: Sides) -> None:
        sides.drop(NAME)

    def publishing(self, subject: str, *, scattered: bool) -> Callable[[Sides, float], Measurement]:
        def run(sides: Sides, scale: float) -> Measurement:
            assert self._side is not None, "prepared"
            count = str(int(COUNTS[100] * SHARE * scale))
            arguments = ["--nats", self._side.nats, "--subject", subject, "--count", count]
            arguments += ["--subjects", str(self._streams if scattered else 1)]
            return measured(sides, self._side, "publisher", "acked", *arguments)

        return run


def many_case(sync: str) -> Case[Sides]:
    load = ManyStreams(sync)
    variants = (
        Variant("to one of them", load.publishing(f"{NAME}.0", scattered=False)),
        Variant(
            "each message to one by chance",
            load.publishing(f"{NAME}.", scattered=True),
            (Target(RATE, 0.5),),
        ),
    )
    title = f"10,000 streams on one node, every message acked, 100 B, sync={sync}"
    return Case(f"many-{sync}", title, (RATE,), variants, load.prepare, load.clear)


CASES: Final = (many_case("os"), many_case("commit"))
