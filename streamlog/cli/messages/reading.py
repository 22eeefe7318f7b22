"""Readers of a stream's partitions, printed until there is enough."""

import asyncio
import sys
from collections.abc import Iterable

from streamlog.cli.messages.record_lines import json_line
from streamlog.cli.options.connection_options import chosen_security
from streamlog.cli.output import write_value
from streamlog.client.cluster import Cluster
from streamlog.client.position import Position
from streamlog.client.reader import PartitionReader
from streamlog.model import TopicPartition
from streamlog.record.codec import Record


class Enough(Exception):
    """As many records as were asked for have been printed."""


class Printer:
    """Prints up to ``count`` records and then raises Enough."""

    def __init__(self, count: int | None, *, as_json: bool) -> None:
        self._left = count
        self._as_json = as_json

    def print(self, partition: int, record: Record) -> None:
        if self._as_json:
            sys.stdout.buffer.write(json_line(partition, record).encode() + b"\n")
        else:
            write_value(record.value or b"")
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise Enough


async def print_stream(
    servers: str,
    stream: str,
    partition: int | None,
    position: Position,
    printer: Printer,
    *,
    follow: bool,
) -> None:
    """Without ``follow``: what is committed now."""
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


async def _follow(readers: Iterable[PartitionReader], printer: Printer) -> None:
    """All at once: in order within a partition, as they come between them."""
    async with asyncio.TaskGroup() as tasks:
        for reader in readers:
            tasks.create_task(_print(reader, printer, follow=True))


async def _print(reader: PartitionReader, printer: Printer, *, follow: bool) -> None:
    async for record in reader.records(follow=follow):
        printer.print(reader.tp.partition, record)
        if follow and reader.next_offset == reader.high_watermark:
            sys.stdout.flush()
