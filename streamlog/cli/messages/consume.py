"""``streamlog consume``: the records of a stream's partitions, printed until there are enough."""

import asyncio
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.options.connection_options import chosen_security
from streamlog.cli.options.names import StreamName
from streamlog.cli.options.options import SERVERS, Json, Servers
from streamlog.cli.output import document, write_value

if TYPE_CHECKING:
    from streamlog.client.position import Position
    from streamlog.client.reader import PartitionReader
    from streamlog.record.codec import Record


def consume(
    stream: StreamName,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one.")] = None,
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest, an offset, or a time (ISO 8601).")
    ] = "earliest",
    count: Annotated[int | None, typer.Option(min=0, help="Stop after so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Print a stream's records: values as they are, or each record as a line of JSON."""
    from streamlog.cli.options.position import parse_position

    position = parse_position(start)
    if count == 0:
        return
    printer = Printer(count, as_json=as_json)
    try:
        asyncio.run(_print_stream(servers, stream, partition, position, printer, follow=follow))
    except* BrokenPipeError:  # `streamlog consume … | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Enough(Exception):
    """As many records as were asked for have been printed."""


class Printer:
    """Prints up to ``count`` records and then raises Enough."""

    def __init__(self, count: int | None, *, as_json: bool) -> None:
        self._left = count
        self._as_json = as_json

    def print(self, partition: int, record: "Record") -> None:
        if self._as_json:
            from streamlog.cli.messages.record_lines import json_record

            sys.stdout.buffer.write(document(json_record(partition, record)).encode())
        else:
            write_value(record.value or b"")
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise Enough


async def _print_stream(
    servers: str,
    stream: str,
    partition: int | None,
    position: "Position",
    printer: Printer,
    *,
    follow: bool,
) -> None:
    """Without ``follow``: what is committed now."""
    from streamlog.client.cluster import Cluster
    from streamlog.client.reader import PartitionReader
    from streamlog.model import TopicPartition

    async with Cluster.at(servers, security=chosen_security()) as cluster:
        partitions = (await cluster.topic(stream)).partitions
        numbers = range(len(partitions)) if partition is None else (partition,)
        readers = [PartitionReader(cluster, TopicPartition(stream, n), position) for n in numbers]
        try:
            if follow:
                await _follow(readers, printer)
            else:
                for reader in readers:
                    await _print(reader, printer, follow=False)
        except* Enough:
            pass
        finally:
            sys.stdout.flush()
            for reader in readers:
                reader.close()


async def _follow(readers: "Iterable[PartitionReader]", printer: Printer) -> None:
    """All at once: in order within a partition, as they come between them."""
    async with asyncio.TaskGroup() as tasks:
        for reader in readers:
            tasks.create_task(_print(reader, printer, follow=True))


async def _print(reader: "PartitionReader", printer: Printer, *, follow: bool) -> None:
    async for record in reader.records(follow=follow):
        printer.print(reader.tp.partition, record)
        if follow and reader.next_offset == reader.high_watermark:
            sys.stdout.flush()
