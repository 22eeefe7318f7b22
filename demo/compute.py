"""Spark over segment files and an Iceberg table: the job of ``spark/jobs``, its figures compared with pandas'."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from demo.flights import Delays, Flights
from streamlog.cli.dev.child import Child
from streamlog.log.checkpoint import OffsetCheckpoint, offset_of
from streamlog.log.storage.disk import OsDisk
from streamlog.model import TopicPartition

JOB: Final = Path(__file__).parents[1] / "spark" / "jobs" / "delays.py"
CHECKPOINT_TIMEOUT_S: Final = 15.0
JOB_TIMEOUT_S: Final = 600.0


class WrongFigure(Exception):
    """Another program and pandas do not agree."""


async def compute_delays(
    data_dir: Path, stream: str, flights: Flights, folder: Path, of_table: Sequence[str]
) -> tuple[float, float]:
    """Run the job and compare, exactly. ``of_table``: its options that name the table. Returns the seconds that it took
    once Spark was warm: for the files, and for the table.
    """
    await _all_committed(data_dir, TopicPartition(stream, 0), len(flights))
    output = folder / "delays.json"
    command = [sys.executable, str(JOB), "--path", str(data_dir), "--stream", stream, "--warm-up"]
    command += [*of_table, "--json", str(output)]
    child = await Child.start("delays.py", command, folder / "spark.log")
    try:
        async with asyncio.timeout(JOB_TIMEOUT_S):
            code = await child.wait()
    finally:
        await child.stop(10)
    if code != 0:
        raise WrongFigure(f"{child.name} failed: {child.last_line()}")
    result = json.loads(output.read_text())
    for name, it in result.items():
        rows = {(row.pop("carrier"), row.pop("origin")): tuple(row.values()) for row in it["rows"]}
        compare(rows, flights.delays, f"Spark over the {name}")
    return float(result["files"]["seconds"]), float(result["table"]["seconds"])


def compare(computed: Delays, expected: Delays, program: str) -> None:
    """``computed`` by this program. Raises WrongFigure where they are not exactly equal."""
    if computed.keys() != expected.keys():
        odd = computed.keys() ^ expected.keys()
        raise WrongFigure(f"only one of {program} and pandas has {sorted(odd)}")
    for name, figures in expected.items():
        if computed[name] != figures:
            raise WrongFigure(f"{name}: {program} says {computed[name]}, pandas {figures}")


async def _all_committed(data_dir: Path, name: TopicPartition, count: int) -> None:
    """Files are read up to the high watermark that is on the disk, which may be a second late."""
    checkpoint = OffsetCheckpoint(data_dir / "high-watermark-checkpoint", OsDisk())
    async with asyncio.timeout(CHECKPOINT_TIMEOUT_S):
        while offset_of(checkpoint.read(), name, None) < count:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.1)
