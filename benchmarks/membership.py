"""How long a large consumer group is at rebalancing."""

from typing import Final

from benchmarks.case import Case, Measurement, Metric, Variant
from benchmarks.processes import run_client
from benchmarks.side import STREAM, Sides, create_stream, delete_stream

MEMBERS: Final = 100
PARTITIONS_EACH: Final = 2

FORMED = Metric("formed_s", "s from the last join", digits=2, lower_is_better=True)
JOINED = Metric("joined_s", "s after one more joins", digits=2, lower_is_better=True)
LEFT = Metric("left_s", "s after one leaves", digits=2, lower_is_better=True)


def rebalance(sides: Sides, scale: float) -> Measurement:
    """Into a stream with two partitions for each member."""
    side, members = sides.streamlog, int(MEMBERS * scale)
    partitions = members * PARTITIONS_EACH
    create_stream(side, partitions=partitions)
    arguments = ["--server", side.kafka, "--topic", STREAM, "--members", str(members)]
    try:
        return run_client("group_members", *arguments, "--partitions", str(partitions))
    finally:
        delete_stream(side)


def case() -> Case[Sides]:
    variants = (Variant("streamlog, 100 confluent-kafka consumers", rebalance),)
    title = "A group of 100, until each member has its share"
    return Case("group", title, (FORMED, JOINED, LEFT), variants)


CASES: Final = (case(),)
