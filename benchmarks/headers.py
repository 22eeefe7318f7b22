"""What headers and envelopes cost a publisher who wants every message acked."""

from collections.abc import Callable
from typing import Final

from benchmarks.case import Case, Measurement, Variant
from benchmarks.cases import RATE, measured
from benchmarks.side import STREAM, Side, Sides, create_stream, delete_stream

COUNT: Final = 200_000
"""All of them are built before the clock starts."""
SIZE: Final = 100


def publishing(
    kind: str, side_of: Callable[[Sides], Side], sync: str | None
) -> Callable[[Sides, float], Measurement]:
    def run(sides: Sides, scale: float) -> Measurement:
        side = side_of(sides)
        create_stream(side, sync=sync)
        arguments = ["--nats", side.nats, "--stream", STREAM, "--count", str(int(COUNT * scale))]
        arguments += ["--size", str(SIZE), "--kind", kind]
        try:
            return measured(sides, side, "publisher", "headed", *arguments)
        finally:
            delete_stream(side)

    return run


def _rows(kind: str, label: str) -> tuple[Variant[Sides], Variant[Sides]]:
    return (
        Variant(f"JetStream, {label}", publishing(kind, lambda sides: sides.jetstream, None)),
        Variant(
            f"streamlog, {label}, sync=os", publishing(kind, lambda sides: sides.streamlog, "os")
        ),
    )


CASES: Final = (
    Case(
        name="headers",
        title="Publish, every message acked, with headers, 100 B",
        metrics=(RATE,),
        variants=(
            *_rows("plain", "no header"),
            *_rows("header", "a header that asks for nothing"),
            *_rows("id", "Nats-Msg-Id"),
            *_rows("expectation", "Nats-Expected-Last-Sequence"),
            Variant(
                "streamlog, in Liftbridge's envelope, sync=os",
                publishing("envelope", lambda sides: sides.streamlog, "os"),
            ),
        ),
    ),
)
