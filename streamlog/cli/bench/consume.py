import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from streamlog.cli.bench.writing import print_figures
from streamlog.cli.options import options as o
from streamlog.cli.options.connection_options import chosen_security
from streamlog.cli.output import print_json, say
from streamlog.errors import InvalidRequest

if TYPE_CHECKING:
    from streamlog.client.reader import PartitionReader


class Consumed(NamedTuple):
    """What was read."""

    partitions: int
    records: int
    size_bytes: int
    """Of whole batches, as they came: compressed where they are."""
    seconds: float


def consume(
    stream: o.StreamName,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one.")] = None,
    start: Annotated[
        str, typer.Option("--from", help="earliest, an offset, or a time (ISO 8601).")
    ] = "earliest",
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop at the end of the batch with so many records.")
    ] = None,
    servers: o.Servers = o.SERVERS,
    as_json: o.Json = False,
) -> None:
    """Read what a stream holds now, over the socket API: MB/s, records/s.

    Batches are taken whole and their checksums are looked at, as any client
    does; records are not taken out of them. All partitions at once, unless
    one is named.

    \b
      streamlog bench consume orders
      streamlog bench consume orders --partition 0 --from 1000000
    """
    from streamlog.cli.options.position import parse_position
    from streamlog.client.cluster import Cluster
    from streamlog.client.reader import PartitionReader
    from streamlog.model import TopicPartition

    position = parse_position(start)

    async def consumed() -> Consumed:
        async with Cluster.at(servers, security=chosen_security()) as cluster:
            partitions = (await cluster.topic(stream)).partitions
            numbers = range(len(partitions)) if partition is None else (partition,)
            readers = [
                PartitionReader(cluster, TopicPartition(stream, n), position) for n in numbers
            ]
            return await _read(readers, count)

    done = asyncio.run(consumed())
    if not done.records:
        raise InvalidRequest(f"stream {stream!r} has no records from {start} on: nothing to read")
    rate, mb_rate = done.records / done.seconds, done.size_bytes / done.seconds / 1e6
    if as_json:
        rates = {"records_per_s": rate, "mb_per_s": mb_rate}
        print_json({"stream": stream, **done._asdict(), **rates})
        return
    say(f"{done.records:,} records of {stream}")
    print_figures(
        (
            ("MB/s", f"{mb_rate:,.1f}"),
            ("records/s", f"{rate:,.0f}"),
            ("seconds", f"{done.seconds:.3f}"),
            ("partitions", f"{done.partitions:,}"),
            ("MB", f"{done.size_bytes / 1e6:,.1f}"),
        )
    )


async def _read(readers: "Sequence[PartitionReader]", count: int | None) -> Consumed:
    """All at once; the clock stops with the last batch, not with the last answer."""
    records = size_bytes = 0
    began = ended = time.perf_counter()

    async def read(reader: "PartitionReader") -> None:
        nonlocal records, size_bytes, ended
        async with reader, contextlib.aclosing(reader.batches()) as batches:
            async for header, batch in batches:
                if count is not None and records >= count:
                    return
                records += header.record_count
                size_bytes += len(batch)
                ended = time.perf_counter()

    async with asyncio.TaskGroup() as tasks:
        for reader in readers:
            tasks.create_task(read(reader))
    return Consumed(len(readers), records, size_bytes, ended - began)
