"""A disk that is full is looked at until there is room; no publisher is needed for that."""

import errno
import os
from pathlib import Path

from streamlog.config import LogSection
from streamlog.errors import StorageFull
from streamlog.log.storage.reserve import Reserve
from streamlog.partition.storage.disk_space import HOLD_MS_MAX, RELAPSE_MS, DiskSpace, Spells
from tests.unit.failing_disk import FailingDisk

SETTINGS = LogSection(disk_check_interval_ms=10, metadata_reserve_bytes=64 * 1024)
NOW = StorageFull("now")


class Bench:
    """``changes``: what ``is_full`` was each time that it was told."""

    def __init__(self, path: Path, *, reserve: Reserve | None = None) -> None:
        self.disk = FailingDisk()
        self.changes: list[bool] = []
        self.space = DiskSpace(path, self.disk, SETTINGS, reserve=reserve, changed=self.tell)
        self.space._spells = Spells(0)

    def tell(self) -> None:
        self.changes.append(self.space.is_full)


def test_a_first_spell_is_short_and_relapses_last_longer() -> None:
    spells = Spells(1_000)
    now_ms, holds = 5_000, []
    for _ in range(8):
        spells.began(now_ms)
        holds.append(spells.hold_ms)
        assert not spells.may_end(now_ms + spells.hold_ms - 1)
        now_ms += spells.hold_ms
        assert spells.may_end(now_ms)
        spells.ended(now_ms)
        now_ms += RELAPSE_MS - 1
    assert holds == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert HOLD_MS_MAX == 30_000
    spells.began(now_ms + 1)
    assert spells.hold_ms == 1_000, "it was well for long enough"


async def test_it_is_full_until_as_much_as_is_wanted_fits(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.space.ran_out(NOW)
    bench.space.ran_out(NOW)
    assert bench.changes == [True]
    bench.disk.faults.break_("pwrite", code=errno.ENOSPC)
    await bench.space.look()
    assert bench.space.is_full
    bench.disk.faults.mend()
    await bench.space.look()
    assert bench.changes == [True, False]
    assert os.listdir(tmp_path) == [], "what was tried leaves nothing"  # noqa: PTH208


async def test_it_is_not_looked_at_before_its_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.space._spells = Spells(RELAPSE_MS)
    bench.space.ran_out(NOW)
    await bench.space.look()
    assert bench.space.is_full


async def test_a_disk_that_fails_is_not_full(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.space.ran_out(NOW)
    bench.disk.faults.break_("create", code=errno.EIO)
    await bench.space.look()
    assert bench.changes == [True, False]


async def test_the_reserve_is_kept_and_a_disk_without_room_for_it_is_full(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "reserve", SETTINGS.metadata_reserve_bytes)
    bench = Bench(tmp_path, reserve=reserve)
    await bench.space.look()
    assert reserve.is_kept
    assert bench.changes == []
    reserve.give_up()
    bench.disk.faults.break_("pwrite", code=errno.ENOSPC)
    await bench.space.look()
    assert bench.changes == [True]
    bench.disk.faults.mend()
    await bench.space.look()
    assert reserve.is_kept
    assert bench.changes == [True, False]
