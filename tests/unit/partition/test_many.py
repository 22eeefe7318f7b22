"""What a stop, a start and the timers do for each of many logs, counted: nothing is timed."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import StorageFailed
from streamlog.log import retention
from streamlog.log.retention import expired_count
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.shared_sync import SharedSync
from streamlog.partition import replica_manager as registry_module
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.record.offset_set import OffsetSet
from tests.partition_world import World, publish, tp, values_of
from tests.unit.partition.replica_world import until

PARTITIONS = 60


class Shared(SharedSync):
    """As if any file system had it."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def is_usable(self) -> bool:
        return True

    is_advisable = is_usable

    def sync(self, files: Iterable[object] = (), *, others: int = 0) -> bool:
        self.count += 1
        return True

    def close(self) -> None:
        pass


class Calls:
    """Of the disk, for files and folders of partitions alone."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.by_name: dict[str, list[str]] = {}
        for name in ("create", "write_small", "sync_directory", "rename", "unlink"):
            patch.setattr(OsDisk, name, self._noted(name, getattr(OsDisk, name)))
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._noted_fd(name, getattr(os, name)))

    def _noted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(disk: OsDisk, path: str, *arguments: Any) -> Any:
            self._note(name, path)
            return call(disk, path, *arguments)

        return noted

    def _noted_fd(self, name: str, call: Callable[[int], None]) -> Callable[[int], None]:
        def noted(fd: int) -> None:
            self._note(name, str(Path(f"/proc/self/fd/{fd}").readlink()))
            call(fd)

        return noted

    def _note(self, name: str, path: str) -> None:
        parts = Path(path).parts
        if "streams" in parts[:-2]:
            self.by_name.setdefault(name, []).append(path)

    def taken(self) -> dict[str, int]:
        """Since the last time."""
        counts = {name: len(paths) for name, paths in self.by_name.items()}
        self.by_name.clear()
        return counts


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Shared:
    found = Shared()
    monkeypatch.setattr(ReplicaManager, "_shared_sync", lambda _: found)
    return found


async def write_to_each(registry: ReplicaManager, value: bytes) -> None:
    for number in range(PARTITIONS):
        await publish(registry.partition(tp("s", number)), value)


async def test_a_log_that_nobody_wrote_to_costs_a_stop_and_a_start_nothing(
    world: World, calls: Calls, shared: Shared
) -> None:
    async with world.node(sync="os") as registry:
        await world.create("s", partitions=PARTITIONS)
        await write_to_each(registry, b"a")
    calls.taken()
    async with world.node(sync="os"):
        assert calls.taken() == {}
        syncs = shared.count
    assert calls.taken() == {}
    assert shared.count == syncs


async def test_a_stop_syncs_all_that_was_written_together(
    world: World, calls: Calls, shared: Shared
) -> None:
    """Each log begins an epoch, so each has its epochs to store."""
    async with world.node(sync="os") as registry:
        await world.create("s", partitions=PARTITIONS)
        await write_to_each(registry, b"a")
        calls.taken()
        before = shared.count
    assert shared.count == before + 2
    # The epochs' new file, and its name.
    assert calls.taken() == {"create": PARTITIONS, "rename": PARTITIONS}
    async with world.node(sync="os") as registry:
        for number in range(PARTITIONS):
            partition = registry.partition(tp("s", number))
            assert await values_of(partition) == [b"a"]
            assert partition.epoch_end(0) == (0, 1)


async def test_a_start_after_a_kill_syncs_all_logs_together(
    world: World, calls: Calls, shared: Shared
) -> None:
    registry = await world.started(sync="os")
    await world.create("s", partitions=PARTITIONS)
    await write_to_each(registry, b"a")
    calls.taken()
    before = shared.count
    async with world.node(sync="os") as registry:
        assert shared.count <= before + 1 + 8  # at most one for each worker thread
        assert calls.taken() == {}
        for number in range(PARTITIONS):
            assert await values_of(registry.partition(tp("s", number))) == [b"a"]


async def test_partitions_that_have_nothing_due_are_not_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer that walks all of them asks each what it is."""
    asked = 0

    class Noted(Partition):
        __slots__ = ()

        @property
        def is_leader(self) -> bool:
            nonlocal asked
            asked += 1
            return super().is_leader

    async with world.node() as registry:
        registry._new_partition = Noted
        await world.create("s", partitions=PARTITIONS)
        await world.create("limited", max_messages_per_subject=1)
        await registry._message_limits.look()
        asked = 0
        for _ in range(5):
            await registry._message_limits.look()
            await registry._log_cleaner.clean_all()
        limited = registry.partition(tp("limited"))
        assert registry._message_limits._trimmed == {limited: None}
        assert asked <= 5 * 10  # of the one that is trimmed
        await world.update("limited", max_messages_per_subject=-1)
        await registry._message_limits.look()
        assert not registry._message_limits._trimmed


async def test_a_log_of_which_nothing_can_go_yet_is_not_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def counted(*arguments: Any, **more: Any) -> int:
        nonlocal looks
        looks += 1
        return expired_count(*arguments, **more)

    monkeypatch.setattr(retention, "expired_count", counted)
    async with world.node() as registry:
        await world.create("s", partitions=PARTITIONS, retention_ms=60_000)
        await write_to_each(registry, b"a")
        task = registry._tasks._retention
        await until(lambda: len(task._due_ms) == PARTITIONS)  # it is known of each
        looks = 0
        await task.look_at_all()
        assert looks == 0
        await publish(registry.partition(tp("s", 7)), b"b")
        await task.look_at_all()
        assert looks == 1
        log = registry.partition(tp("s", 3)).state.log
        now_ms = (log.first_timestamp_ms() or 0) + 60_001
        assert log.retained_start(now_ms, 1, erased=OffsetSet()) == 1  # it is due now


async def test_health_is_known_without_a_walk_over_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    class Noted(Partition):
        __slots__ = ()

        @property
        def is_ailing(self) -> bool:
            nonlocal looks
            looks += 1
            return super().is_ailing

    async with world.node() as registry:
        registry._new_partition = Noted
        await world.create("s", partitions=PARTITIONS)
        assert registry.ailing() == []
        looks = 0
        assert registry.ailing() == []
        partition = registry.partition(tp("s", 5))
        error = StorageFailed("broken")
        partition.carry_out(partition.state.disk_failed(error))
        assert registry.ailing() == [partition]
        assert looks < PARTITIONS
        monkeypatch.setattr(registry_module, "ALL_S", 0.0)
        other = registry.partition(tp("s", 6))
        other.state.fail(error)  # and tells nobody
        assert set(registry.ailing()) == {partition, other}
