"""A folder is read by path while compaction replaces segments in it, at each of its steps."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.files.file_reader import FileReader
from streamlog.arrow.files.file_system import LocalFiles, ReadableFile
from streamlog.arrow.offset_ranges import plan_offset_ranges
from streamlog.arrow.range_reader import open_location
from streamlog.log.compaction.blocking import clean
from streamlog.log.compaction.cleaner import Cleaning, Terms
from streamlog.log.log import PartitionLog
from streamlog.log.storage.disk import OsDisk, OsFile
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.codec import iter_records
from streamlog.record.columns import arrow_schema
from tests.compacted_log import COMPACTED, sealed
from tests.log_folder import read_batches
from tests.simulation.disk import PowerCut
from tests.spark.data_folder import DataFolder

COUNT = 24
TERMS = Terms(10_000)
Row = tuple[int, bytes]


class StepFile(OsFile):
    """A file of a StepDisk."""

    def __init__(self, fd: int, step: Callable[[], None]) -> None:
        super().__init__(fd)
        self._step = step

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        self._step()
        return super().pwrite(data, position)

    def sync(self) -> None:
        """No power is cut here."""


class StepDisk(OsDisk):
    """The process is killed after so many calls that change something."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.calls = 0

    def step(self) -> None:
        self.calls += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise PowerCut

    def create(self, path: str) -> OsFile:
        self.step()
        return StepFile(super().create(path).fileno(), self.step)

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self.step()
        super().unlink(path)

    def sync_directory(self, path: str) -> None:
        pass

    def write_small(self, path: str, data: bytes) -> None:
        self.step()
        Path(path).write_bytes(data)


class World:
    """A partition with keys, whose sealed segments are to be compacted."""

    def __init__(self, path: Path) -> None:
        self.disk = StepDisk()
        self.folder = DataFolder(path)
        self.pool = FilePool(self.disk, 16)
        self.log = PartitionLog.open(
            self.folder.partition(), COMPACTED, disk=self.disk, files=self.pool
        )
        self.folder.commit(COUNT)
        for number in range(COUNT):
            pair = b"k%d" % (number % 7), b"%d" % number * 30
            self.log.append(sealed(number, [pair]), 1_000)
            if number % 6 == 5 and number < COUNT - 1:
                self.log.roll()
        ticket = self.log.begin_sync()
        assert ticket is not None
        ticket.run()
        self.log.finish_sync(ticket)
        self.path = path
        self.written = [(number, b"%d" % number * 30) for number in range(COUNT)]

    def clean(self) -> None:
        clean(self.log, TERMS, upper_offset=COUNT, disk=self.disk, pool=self.pool)

    def steps(self) -> Iterator[None]:
        """The same, step by step."""
        sealed_ones = self.log.segments.sealed()
        cleaning = Cleaning(self.log, sealed_ones, TERMS, disk=self.disk, pool=self.pool)
        cleaning.note_keys()
        while cleaning.left:
            swap = cleaning.clean()
            yield
            if swap is None:
                continue
            assert swap.begin()
            swap.commit()
            swap.replace()
            yield
            swap.remove_old()
            yield
            swap.rename()
            yield
            swap.settle()
            swap.finish()
            yield

    def kept(self) -> list[Row]:
        return [
            (record.offset, record.value or b"")
            for _, batch in read_batches(self.log)
            for record in iter_records(batch)
        ]


def rows(path: Path, **given: str) -> list[Row]:
    options = SourceOptions.parse({"path": str(path), "subscribe": "orders", **given})
    place = open_location(options)
    tasks = place.cut(plan_offset_ranges(place, options), options.task_bytes_max, options.tasks_min)
    found: list[dict[str, Any]] = []
    for task in tasks:
        reader = FileReader(task, options, arrow_schema(("offset", "value")))
        found += [row for batch in reader.read() for row in batch.to_pylist()]
    return [(row["offset"], row["value"]) for row in found]


def survivors(path: Path) -> list[Row]:
    world = World(path)
    world.clean()
    return world.kept()


def calls_of_a_cleaning(path: Path) -> int:
    world = World(path)
    before = world.disk.calls
    world.clean()
    return world.disk.calls - before


def check(found: list[Row], kept: list[Row], written: list[Row]) -> None:
    """All that outlives the compaction, nothing that never was, each once and in order."""
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(set(offsets))
    assert set(kept) <= set(found) <= set(written)


@pytest.mark.parametrize("given", [{}, {"minPartitions": "6"}], ids=["one task", "tasks"])
def test_whatever_a_killed_node_has_done_of_a_swap(tmp_path: Path, given: dict[str, str]) -> None:
    kept = survivors(tmp_path / "kept")
    assert 5 < len(kept) < COUNT - 5
    calls = calls_of_a_cleaning(tmp_path / "calls")
    assert calls > 10
    for number in range(calls):
        world = World(tmp_path / str(number))
        world.disk.left = number
        with pytest.raises(PowerCut):
            world.clean()
        for fail in ("true", "false"):
            found = rows(world.path, failOnDataLoss=fail, **given)
            check(found, kept, world.written)


class Watched(LocalFiles):
    """Something happens before one of the looks at the folder."""

    def __init__(self, at: int, happens: Callable[[], None]) -> None:
        self.looks = 0
        self._at = at
        self._happens = happens

    def children(self, folder: str) -> tuple[dict[str, int], list[str]]:
        self._look()
        return super().children(folder)

    def open(self, path: str) -> Any:
        self._look()
        found: ReadableFile = super().open(path)
        return found

    def _look(self) -> None:
        self.looks += 1
        if self.looks == self._at:
            self._happens()


@pytest.mark.parametrize("steps", [1, 2, 100])
def test_a_swap_that_goes_on_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    kept = survivors(tmp_path / "kept")
    for before in range(7):
        look = 0
        while True:
            look += 1
            world = World(tmp_path / f"{before}.{look}")
            going = world.steps()
            for _ in range(before):
                next(going, None)

            def go_on(going: Iterator[None] = going) -> None:
                for _ in range(steps):
                    next(going, None)

            files = Watched(look, go_on)
            monkeypatch.setattr(
                "streamlog.arrow.files.stream_folder.files_at",
                lambda url, files=files: (files, url),
            )
            found = rows(world.path)
            monkeypatch.undo()
            check(found, kept, world.written)
            world.log.close()
            if files.looks < look:
                break
