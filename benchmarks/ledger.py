"""The ledger: through broadcast into blocks, back out of them, and how long that takes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks import machine
from benchmarks.case import Case, Measurement, Variant
from benchmarks.cases import MEGABYTES, P50, P99, RATE, publishing
from benchmarks.ledger_node import CHANNEL, LedgerNode
from benchmarks.processes import cpu_seconds, run_client
from benchmarks.side import Sides

SIZE: Final = 100
BATCH_SIZES: Final = (1, 10, 100, 1_000)
COUNT: Final = 50_000
DELIVERED: Final = 200_000
LATENCY_COUNT: Final = 10_000
LATENCY_RATE: Final = 1_000
LATENCY_BATCH_SIZES: Final = (1, 10, 100)
TIMEOUT_MS: Final = 2_000
FOLDER: Final = "ledger"


@contextmanager
def ordering(sides: Sides, batch_size: int, timeout_ms: int | None = None) -> Iterator[LedgerNode]:
    """A node, and a channel that is new."""
    options = {} if timeout_ms is None else {"timeout_ms": timeout_ms}
    side = sides.streamlog
    node = sides.own(FOLDER, lambda path: LedgerNode(path, side, batch_size=batch_size, **options))
    try:
        yield node
    finally:
        sides.drop(FOLDER)


def measured(sides: Sides, node: LedgerNode, mode: str, *arguments: str) -> Measurement:
    """Run a client and add what the servers' processors did for it, the ordering node's too."""
    machine.settle(sides.directory)
    before = cpu_seconds(node.pids)
    result = run_client(
        "ledger_client", mode, "--nats", node.nats, "--channel", CHANNEL, *arguments
    )
    used = cpu_seconds(node.pids) - before
    return {**result, "server_us": 1e6 * used / result["messages"]}


def through(batch_size: int, *options: str) -> Callable[[Sides, float], Measurement]:
    """Broadcasts until all are in blocks on disk."""

    def run(sides: Sides, scale: float) -> Measurement:
        count = DELIVERED if options else COUNT
        with ordering(sides, batch_size) as node:
            arguments = ["--count", str(int(count * scale)), "--size", str(SIZE), *options]
            return measured(sides, node, "through", *arguments, "--batch-size", str(batch_size))

    return run


def delivering(batch_size: int, *options: str) -> Callable[[Sides, float], Measurement]:
    """A chain that was made before the clock starts."""

    def run(sides: Sides, scale: float) -> Measurement:
        with ordering(sides, batch_size) as node:
            arguments = ["--count", str(int(DELIVERED * scale)), "--size", str(SIZE), "--plain"]
            measured(sides, node, "through", *arguments, "--batch-size", str(batch_size))
            return measured(sides, node, "deliver", *options)

    return run


def timing(batch_size: int) -> Callable[[Sides, float], Measurement]:
    """At a rate that leaves everything idle most of the time."""

    def run(sides: Sides, scale: float) -> Measurement:
        with ordering(sides, batch_size, TIMEOUT_MS) as node:
            arguments = ["--count", str(int(LATENCY_COUNT * scale)), "--size", str(SIZE)]
            return measured(sides, node, "latency", *arguments, "--rate", str(LATENCY_RATE))

    return run


def cases() -> Iterator[Case[Sides]]:
    by_nats = publishing("acked", lambda sides: sides.streamlog, SIZE, sync="commit")
    yield Case(
        "ledger-broadcast",
        "The ledger: through broadcast into blocks, 100 B",
        (RATE,),
        (
            Variant("no ledger: published by NATS, every message acked, sync=commit", by_nats),
            *(Variant(f"batch_size={size}", through(size)) for size in BATCH_SIZES),
            *(
                Variant(f"batch_size={size}, published by plain NATS", through(size, "--plain"))
                for size in BATCH_SIZES[1:]
            ),
        ),
        rounds=3,
    )
    yield Case(
        "ledger-deliver",
        "The ledger: delivered from the oldest block on, 100 B",
        (RATE, MEGABYTES),
        (
            *(Variant(f"batch_size={size}", delivering(size)) for size in (100, 1_000)),
            Variant("batch_size=1000, each block verified", delivering(1_000, "--verify")),
        ),
        rounds=3,
    )
    yield Case(
        "ledger-latency",
        "The ledger: from broadcast until delivered in a block, 1,000 records/s, 100 B",
        (P50, P99),
        tuple(Variant(f"batch_size={size}", timing(size)) for size in LATENCY_BATCH_SIZES),
        rounds=3,
    )


CASES: Final = tuple(cases())
