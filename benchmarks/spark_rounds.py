"""``python -m benchmarks.spark_rounds``: Spark reads a stream by each source in turn, round by round, in one process.

All sources are warm, and what else the machine does falls on all alike: a ratio of two of them says more than that of
two processes one after the other. One node has the stream; Java, Spark's workers and the node share the processors.
``servers-512`` and ``path-512`` have tasks of 512 MiB, which is the default for streams of 4 GiB and more.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks import spark_query
from benchmarks.processes import run_client
from benchmarks.side import STREAM, Sides, create_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS: Final = ("kafka", "servers", "servers-512", "path", "path-512", "floor")
SIZE: Final = 1_024
WARM_UPS: Final = 2
LARGE_TASK_BYTES: Final = 512 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000_000, help="records of 1 KiB")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sides = Sides(Path(folder))
        try:
            print(json.dumps(_rounds(sides, options.count, options.rounds), indent=1))
        finally:
            sides.stop()


def _rounds(sides: Sides, count: int, rounds: int) -> dict[str, Any]:
    """By kind, of each figure: the median, the least and the most."""
    side = sides.streamlog
    create_stream(side, sync="os")
    arguments = ["--nats", side.nats, "--subject", f"{STREAM}.a", "--distinct"]
    run_client("publisher", "acked", *arguments, "--count", str(count), "--size", str(SIZE))
    options = argparse.Namespace(
        server=side.kafka,
        path=str(side.streams.parent),
        stream=STREAM,
        node_pid=side.node_pid,
        count=count,
        size=SIZE,
    )
    spark = spark_query.session(kafka=True)
    try:
        frames = {kind: _frame(kind, spark, options) for kind in KINDS}
        counts = {kind: frame.count() for kind, frame in frames.items()}
        passes: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
        for number in range(WARM_UPS + rounds):
            for kind, frame in frames.items():
                found = spark_query.timed_pass(frame, counts[kind], options)
                if number >= WARM_UPS:
                    passes[kind].append(found)
    finally:
        spark.stop()
    return {kind: _summary(found) for kind, found in passes.items()}


def _frame(kind: str, spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    name, _, large = kind.partition("-")
    if not large:
        return spark_query.SOURCES[name](spark, options)
    return spark_query.ours(
        spark,
        options,
        maxBytesPerPartition=str(LARGE_TASK_BYTES),
        **({"path": options.path} if name == "path" else {"servers": options.server}),
    )


def _summary(passes: list[dict[str, float]]) -> dict[str, list[float]]:
    columns = {name: [it[name] for it in passes] for name in passes[0]}
    return {
        name: [round(it, 2) for it in (median(values), min(values), max(values))]
        for name, values in columns.items()
    }


if __name__ == "__main__":
    main()
