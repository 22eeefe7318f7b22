"""The state alone, over a real log; the test is the clock, the loop and the worker thread."""

from pathlib import Path

import pytest

from streamlog.config import SyncPolicy
from streamlog.errors import NotLeader, StorageFailed, StorageFull, StreamlogError
from streamlog.log.disk import OsDisk
from streamlog.log.files import FilePool
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.state import PartitionState
from tests.partition_world import run_of

ONE = NodeId(1)


class Heard:
    """An acknowledgement that notes what it hears in a list."""

    def __init__(self, story: list[object], name: str) -> None:
        self.story = story
        self.name = name

    def committed(self, base_offset: int) -> None:
        self.story.append((self.name, base_offset))

    def failed(self, error: StreamlogError) -> None:
        self.story.append((self.name, type(error).__name__))


class Bench:
    def __init__(self, directory: Path, sync: SyncPolicy, *, lead: bool = True) -> None:
        disk = OsDisk()
        self.log = PartitionLog.open(directory, LogSettings(), disk=disk, files=FilePool(disk, 16))
        self.state = PartitionState(
            TopicPartition("s", 0), self.log, node_id=ONE, high_watermark=0, sync=sync
        )
        self.story: list[object] = []
        if lead:
            self.state.lead(0, (ONE,))

    def append(self, name: str, count: int = 1) -> int:
        run = run_of(*[b"x"] * count)
        return self.state.append(run, 5, Heard(self.story, name))

    def sync(self) -> None:
        ticket = self.state.begin_sync()
        assert ticket is not None
        ticket.run()
        self.state.finish_sync()


def test_committed_means_synced_and_comes_in_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit")
    assert [bench.append("a", 3), bench.append("b")] == [0, 3]
    bench.state.settle()
    assert bench.story == []
    assert bench.state.high_watermark == 0
    assert bench.state.in_flight_bytes == bench.log.size_bytes > 0
    bench.sync()
    assert bench.story == [("a", 0), ("b", 3)]
    assert bench.state.high_watermark == 4
    assert bench.state.in_flight_bytes == 0


def test_a_sync_commits_what_was_there_when_it_began(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a")
    ticket = bench.state.begin_sync()
    bench.append("b")
    assert ticket is not None
    assert bench.state.begin_sync() is None, "one at a time"
    ticket.run()
    bench.state.finish_sync()
    assert bench.story == [("a", 0)]
    bench.sync()
    assert bench.story == [("a", 0), ("b", 1)]


@pytest.mark.parametrize("sync", ["interval", "os"])
def test_lazy_policies_commit_without_a_sync_but_not_inside_append(
    tmp_path: Path, sync: SyncPolicy
) -> None:
    bench = Bench(tmp_path, sync)
    bench.append("a", 2)
    assert bench.story == []
    bench.state.settle()
    assert bench.story == [("a", 0)]
    assert bench.state.high_watermark == 2
    assert bench.log.recovery_point == 0


def test_a_stricter_policy_takes_nothing_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "os")
    bench.append("a")
    bench.state.settle()
    bench.state.sync = "commit"
    bench.append("b")
    bench.state.settle()
    assert bench.story == [("a", 0)]
    assert bench.state.high_watermark == 1
    bench.sync()
    assert bench.story == [("a", 0), ("b", 1)]


def test_only_a_leader_appends(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit", lead=False)
    run = run_of(b"x")
    with pytest.raises(NotLeader):
        bench.state.append(run, 5, Heard(bench.story, "a"))
    assert run.count == 0
    assert bench.log.log_end_offset == 0


def test_batches_carry_the_epoch_they_were_written_in(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a", 2)
    bench.state.lead(3, (ONE,))
    bench.append("b")
    assert [tuple(entry) for entry in bench.log.epochs.entries] == [(0, 0), (3, 2)]
    with pytest.raises(AssertionError):
        bench.state.lead(2, (ONE,))


def test_a_full_disk_keeps_what_waits_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a")

    def full(_batch: bytes, _now_ms: int) -> None:
        raise StorageFull("full")

    run = run_of(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(bench.log, "append", full)
        with pytest.raises(StorageFull):
            bench.state.append(run, 5, Heard(bench.story, "b"))
    assert run.count == 0
    assert bench.append("c") == 1
    bench.sync()
    assert bench.story == [("a", 0), ("c", 1)]


def test_a_failed_append_takes_the_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("kept")
    bench.sync()
    bench.append("a")

    def broken(_batch: bytes, _now_ms: int) -> None:
        raise StorageFailed("broken")

    monkeypatch.setattr(bench.log, "append", broken)
    with pytest.raises(StorageFailed):
        bench.append("b")
    assert bench.story == [("kept", 0), ("a", "StorageFailed")]
    monkeypatch.undo()
    with pytest.raises(StorageFailed):
        bench.append("c")
    assert bench.state.begin_sync() is None
    assert bench.state.high_watermark == 1
    assert bench.state.in_flight_bytes == 0


def test_a_failed_sync_fails_all_that_waits_and_nothing_is_acknowledged_after_it(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a")
    assert bench.state.begin_sync() is not None
    bench.append("b")
    bench.state.sync_failed(StorageFailed("broken"))
    assert bench.story == [("a", "StorageFailed"), ("b", "StorageFailed")]
    assert bench.state.high_watermark == 0
    assert bench.log.failed
    with pytest.raises(StorageFailed):
        bench.append("c")


def test_a_sync_that_ends_after_a_failure_acknowledges_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a")
    ticket = bench.state.begin_sync()
    bench.state.fail(StorageFailed("broken"))
    bench.state.fail(StorageFailed("again"))
    assert ticket is not None
    ticket.run()
    assert bench.state.finish_sync() == []
    assert bench.story == [("a", "StorageFailed")]
    assert bench.state.high_watermark == 0


def test_the_high_watermark_starts_where_it_was_known_to_be(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "commit")
    bench.append("a", 5)
    bench.sync()
    state = PartitionState(
        TopicPartition("s", 0), bench.log, node_id=ONE, high_watermark=3, sync="commit"
    )
    assert state.high_watermark == 3
    state.lead(1, (ONE,))
    assert state.high_watermark == 5, "an ISR of one: what is recovered is committed"
    beyond = PartitionState(
        TopicPartition("s", 0), bench.log, node_id=ONE, high_watermark=9, sync="commit"
    )
    assert beyond.high_watermark == 5
