"""An Iceberg table of a stream in a test: where it is, the command that writes it, and whether it is right."""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamlog.lake.catalog import TableName
from streamlog.lake.position import OFFSETS, RANGES
from streamlog.lake.table import LakeTable
from tests.spark.live_node import LiveNode
from tools.nodes.server_process import ServerProcess

Row = tuple[int, int, int, bytes | None, bytes | None]
"""Partition, offset, time, key, value."""


def sql_catalog(folder: Path) -> dict[str, str]:
    """In a file of SQLite, with data in a folder."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": f"file://{folder / 'warehouse'}",
    }


class StreamTable:
    """The table of one stream, in a catalog of its own."""

    def __init__(self, folder: Path, stream: str, properties: Mapping[str, str]) -> None:
        self.folder = folder
        self.stream = stream
        self.name = TableName(f"lake.{stream}", "tests", properties)

    @property
    def table(self) -> LakeTable:
        return LakeTable.at(self.name)

    @property
    def dead_letters(self) -> LakeTable:
        return LakeTable.at(self.name.dead_letters)

    def command(self, action: str, *options: str) -> list[str]:
        found = [sys.executable, "-m", "streamlog", "lake", action]
        found += ["--table", self.name.table, "--catalog", self.name.catalog]
        for key, value in self.name.properties.items():
            found += ["--catalog-property", f"{key}={value}"]
        return [*found, *options]

    def job(self, node: LiveNode, *options: str, log: str = "job.log") -> ServerProcess:
        """``streamlog lake run``, not started yet."""
        where = ("--bootstrap-server", node.kafka)
        command = [*self.command("run", *where, *options), self.stream]
        return ServerProcess(command, self.folder / log)

    def run_once(self, node: LiveNode, *options: str, timeout_s: float = 120.0) -> str:
        """Catch up. Returns what it printed."""
        job = self.job(node, "--engine", "local", "--once", *options)
        job.spawn()
        try:
            code = job.wait(timeout_s)
        finally:
            job.kill()
        assert code == 0, job.log_text()[-3_000:]
        return job.log_text()

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table.load().scan().to_arrow().to_pylist()
        return found

    def check(self, node: LiveNode, partitions: int = 1) -> int:
        """Every record of the log is there once, as it is, and nothing else is; the snapshots' ranges follow one
        another. Returns the number of rows.
        """
        count = self.check_rows(node, partitions)
        self.check_ranges()
        return count

    def check_rows(self, node: LiveNode, partitions: int = 1) -> int:
        """As ``check``, where snapshots have been expired."""
        there = Counter(
            (it["partition"], it["offset"], int(it["timestamp"].timestamp() * 1000 + 0.5),
             it["key"], it["value"])
            for it in self.rows()
        )  # fmt: skip
        expected = Counter(
            (number, it.offset, it.timestamp_ms, it.key, it.value)
            for number in range(partitions)
            for it in node.records(self.stream, number)
        )
        assert there == expected, f"{len(there)} rows, {len(expected)} records"
        return sum(there.values())

    def check_ranges(self) -> None:
        table = self.table.load()
        ends: dict[str, int] = {}
        for summary in reversed(_summaries(table)):
            if OFFSETS not in summary:
                continue
            for number, (start, end) in json.loads(summary[RANGES]).items():
                assert ends.get(number, start) == start, (number, ends, start)
                ends[number] = end
            assert json.loads(summary[OFFSETS]) == ends


def _summaries(table: Any) -> Sequence[Mapping[str, str]]:
    """Of the current snapshot and its ancestors."""
    found = []
    snapshot = table.current_snapshot()
    while snapshot is not None:
        found.append(snapshot.summary.additional_properties)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return found
