"""Logs whose small files are replaced with the syncs that all of them share."""

import random
from pathlib import Path

import pytest

from streamlog.log.layout import EPOCHS_NAME
from streamlog.log.leader_epochs import LeaderEpochs
from streamlog.log.log import PartitionLog
from streamlog.log.recovery.recovery import DeferredSyncs
from streamlog.log.settings import LogSettings
from streamlog.log.storage.file_pool import FilePool
from streamlog.partition.storage.flusher import sync_together as sync_tickets_together
from tests.log_folder import append
from tests.simulation.disk import PowerCut, SimDisk

LOGS = 3
STEPS = 60
"""More than a group of so many logs takes."""


class Shared:
    """A sync of all of a simulated disk."""

    def __init__(self, disk: SimDisk, *works: bool) -> None:
        self._disk = disk
        self._works = list(works)
        self.count = 0

    def sync(self, files: object = ()) -> bool:
        list(files)  # type: ignore[call-overload]
        self.count += 1
        if self._works and not self._works.pop(0):
            return False
        self._disk.sync_file_system()
        return True


def folder(number: int) -> str:
    return f"/streams/s/{number}"


def opened(disk: SimDisk, **known: object) -> list[PartitionLog]:
    files = FilePool(disk, 64)
    return [
        PartitionLog.open(Path(folder(number)), LogSettings(), disk=disk, files=files, **known)  # type: ignore[arg-type]
        for number in range(LOGS)
    ]


def grown(disk: SimDisk) -> list[PartitionLog]:
    """Each log has two batches of epoch 1, which are synced, and two of epoch 5, which are not."""
    logs = opened(disk)
    for log in logs:
        append(log, 2, epoch=1)
        append(log, 2, epoch=1)
        ticket = log.begin_sync()
        assert ticket is not None
        ticket.run()
        log.finish_sync(ticket)
        append(log, 2, epoch=5)
        append(log, 2, epoch=5)
    return logs


def sync_together(logs: list[PartitionLog], shared: Shared) -> None:
    tickets = [log.begin_sync() for log in logs]
    failures = sync_tickets_together(tickets, shared)  # type: ignore[arg-type]
    if any(isinstance(failure, PowerCut) for failure in failures):
        raise PowerCut
    assert failures == [None] * len(logs)
    for log, ticket in zip(logs, tickets, strict=True):
        assert ticket is not None
        assert log.finish_sync(ticket) == log.log_end_offset


def epochs_on(disk: SimDisk, number: int) -> list[tuple[int, ...]]:
    data = disk.content(f"{folder(number)}/{EPOCHS_NAME}")
    return [tuple(it) for it in LeaderEpochs.decode(data, "x").entries]


def test_epochs_of_many_logs_are_stored_with_two_syncs_for_all_of_them() -> None:
    disk = SimDisk()
    logs, shared = grown(disk), Shared(disk)
    disk.calls.clear()
    sync_together(logs, shared)
    assert shared.count == 2
    assert "write_small" not in disk.calls
    assert "sync_directory" not in disk.calls
    disk.crash()
    assert [epochs_on(disk, number) for number in range(LOGS)] == [[(1, 0), (5, 4)]] * LOGS


@pytest.mark.parametrize("works", [(False,), (True, False)])
def test_where_a_shared_sync_fails_each_log_is_synced_by_itself(works: tuple[bool, ...]) -> None:
    disk = SimDisk()
    logs = grown(disk)
    sync_together(logs, Shared(disk, *works))
    disk.crash()
    assert [epochs_on(disk, number) for number in range(LOGS)] == [[(1, 0), (5, 4)]] * LOGS
    assert [log.log_end_offset for log in opened(disk, recovery_point=8)] == [8] * LOGS


@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("seed", range(3))
def test_power_is_cut_between_any_two_calls(seed: int, step: int) -> None:
    """A log has its old epochs or its new ones, whole, and after a start those of its batches."""
    disk = SimDisk(seed)
    logs = grown(disk)
    disk.calls_left = step
    done = False
    try:
        sync_together(logs, Shared(disk))
        done = True
    except PowerCut:
        pass
    disk.crash()
    for number in range(LOGS):
        wanted = [[(1, 0), (5, 4)]] if done else [[(1, 0)], [(1, 0), (5, 4)]]
        assert epochs_on(disk, number) in wanted
    for log in opened(disk, recovery_point=8 if done else 4):
        assert log.log_end_offset == 8 if done else 4 <= log.log_end_offset <= 8
        latest = 5 if log.log_end_offset > 4 else 1
        assert log.epochs.latest == latest
        assert not log.damaged_from


# Logs that are opened together


@pytest.mark.parametrize("works", [True, False])
def test_logs_of_a_killed_process_are_synced_together_when_they_are_opened(works: bool) -> None:
    disk = SimDisk()
    grown(disk)
    disk.kill()
    disk.sync_file_system()  # as a start does before it opens any
    disk.calls.clear()
    syncs, files = DeferredSyncs(), FilePool(disk, 64)
    logs = [
        PartitionLog.open(
            Path(folder(number)),
            LogSettings(),
            disk=disk,
            files=files,
            recovery_point=4,
            syncs=syncs,
        )
        for number in range(LOGS)
    ]
    assert disk.calls.get("sync_directory", 0) == disk.calls.get("sync", 0) == 0
    assert not syncs.run(disk, files, lambda: Shared(disk, works).sync())
    disk.crash()
    assert [log.log_end_offset for log in logs] == [8] * LOGS
    again = opened(disk, recovery_point=8)
    assert [log.log_end_offset for log in again] == [8] * LOGS
    assert [log.epochs.latest for log in again] == [5] * LOGS


@pytest.mark.parametrize("works", [True, False])
def test_a_log_that_ends_before_its_start_is_opened_with_others(works: bool) -> None:
    """A purge was durable; what it let be was not synced yet when the power went. So nothing is left to be synced."""
    disk = SimDisk()
    grown(disk)
    disk.crash()
    syncs, files = DeferredSyncs(), FilePool(disk, 64)
    for number in range(LOGS):
        log = PartitionLog.open(
            Path(folder(number)),
            LogSettings(),
            disk=disk,
            files=files,
            log_start_offset=20,
            power_lost=True,
            syncs=syncs,
        )
        assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    assert not syncs.run(disk, files, lambda: Shared(disk, works).sync())


@pytest.mark.parametrize("seed", range(20))
def test_a_start_is_killed_or_loses_power_before_its_shared_sync(seed: int) -> None:
    """What was synced before is there at the next one."""
    disk, rng = SimDisk(seed), random.Random(seed)
    grown(disk)
    disk.kill()
    disk.sync_file_system()
    disk.calls_left = rng.randrange(80)
    try:
        syncs, files = DeferredSyncs(), FilePool(disk, 64)
        for number in range(LOGS):
            PartitionLog.open(
                Path(folder(number)),
                LogSettings(),
                disk=disk,
                files=files,
                recovery_point=4,
                syncs=syncs,
            )
    except PowerCut:
        pass
    disk.crash()
    for log in opened(disk, recovery_point=4):
        assert log.log_end_offset == 8  # the first sync of the start has made it durable
        assert log.epochs.latest == 5
