"""Backups of a cluster that goes on meanwhile, some of them interrupted, and the cluster made of
the last one.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from streamlog.backup.cluster_restore import restore_cluster
from streamlog.backup.create import BackupOptions, take
from streamlog.backup.folder import BackupFolder
from streamlog.backup.verify import verify_backup
from streamlog.errors import StreamlogError
from streamlog.groups.group import Group
from streamlog.groups.replay import GroupReplay
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import decode_snapshot, find_snapshots, snapshot_path
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.model import NodeId
from streamlog.record.batch import batches
from tests.property.backed_up_cluster import GROUP, BackedUpCluster, Watched

NAMES = ("A", "z")
"""Of which one is before the nodes' own streams, and one behind them."""
ONE = NodeId(1)
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Each example syncs a hundred files."""

GROWN: list[Any] = [
    ("all", [[("grow", "z", 0), ("publish", "z", 1)]], 2, BackupOptions()),
    ("all", [[("commit", "z", 1)]], 7, BackupOptions()),
]
"""The metadata of the backup do not know a partition that its records and offsets are of."""
AGAIN: list[tuple[Any, ...]] = [("again", "A"), *[("publish", "A", 0)] * 3]

deeds = st.tuples(
    st.sampled_from(["publish", "publish", "publish", "commit", "commit", "purge", "grow"]),
    st.sampled_from(NAMES),
    st.integers(0, 1),
) | st.tuples(st.sampled_from(["create", "create", "delete", "again"]), st.sampled_from(NAMES))
turns = st.lists(st.lists(deeds, max_size=3), max_size=25)
"""What is done before each answer that a backup asks for."""
takes = st.lists(
    st.tuples(
        st.sampled_from(["all", "all", OFFSETS_STREAM, *NAMES]),
        turns,
        st.none() | st.integers(1, 25),
        st.sampled_from(
            [
                BackupOptions(),
                BackupOptions(),
                BackupOptions(),
                BackupOptions(full=True),
                BackupOptions(prune=True),
            ]
        ),
    ),
    max_size=4,
)


class _Killed(Exception):
    """The process that takes the backup is."""


def do(cluster: BackedUpCluster, deed: tuple[str, ...]) -> None:
    match deed:
        case ("create", name):
            cluster.create(name)
        case ("delete", name):
            cluster.delete(name)
        case ("again", name):
            cluster.delete(name)
            cluster.create(name)
        case ("publish", name, number):
            cluster.publish(name, int(number) % len(cluster.image.stream(name).partitions))
        case ("commit", name, number):
            cluster.commit(name, int(number) % len(cluster.image.stream(name).partitions))
        case ("purge", name, _):
            cluster.purge(name, 0)
        case ("grow", name, _):
            cluster.update(name, partitions=2)


def taken(
    folder: Path,
    cluster: BackedUpCluster,
    todo: Iterator[list[tuple[str, ...]]],
    wish: BackupOptions,
    killed_at: int | None = None,
) -> list[str] | None:
    """What was wrong; None where it did not come to its end."""
    calls = 0

    def meanwhile() -> None:
        nonlocal calls
        calls += 1
        if calls == killed_at:
            raise _Killed
        for deed in next(todo, []):
            with contextlib.suppress(StreamlogError):
                do(cluster, deed)

    with BackupFolder.make(folder) as opened:
        try:
            return asyncio.run(take(opened, Watched(cluster, meanwhile), wish)).problems
        except (_Killed, StreamlogError):
            return None


class Restored:
    """A node's folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        snapshot = find_snapshots(OsDisk(), path / "metadata")[0]
        data = snapshot_path(path / "metadata", snapshot).read_bytes()
        self.image: MetadataImage = decode_snapshot(data, "")

    def records(self, name: str, number: int) -> bytes:
        """All of a partition; its ``end`` is remembered."""
        folder = self._path / "streams" / name / str(number)
        log = PartitionLog.open(folder, LogSettings(), disk=OsDisk(), files=FilePool(OsDisk(), 16))
        with contextlib.closing(log):
            self.end = log.log_end_offset
            offset, data = log.log_start_offset, b""
            while offset < self.end:
                with log.read(offset, 1 << 30, self.end) as part:
                    data += part.read()
                offset = max(header.next_offset for header, _ in batches(data))
            return data

    def groups(self) -> list[Group]:
        replay = GroupReplay()
        replay.feed(self.records(OFFSETS_STREAM, 0))
        return replay.built()


def check_records(restored: Restored, cluster: BackedUpCluster) -> None:
    """Each stream has records of its own, from its start on without a hole."""
    for name, stream in restored.image.streams.items():
        for number in range(len(stream.partitions)):
            data = restored.records(name, number)
            last_id = max((header.producer_id for header, _ in batches(data)), default=-1)
            assert last_id < restored.image.producer_ids_end
            if name == OFFSETS_STREAM:
                continue
            place = (stream.stream_id, number)
            kept = [bytes(batch) for _, batch in batches(data)]
            assert kept == cluster.logs.get(place, [])[restored.end - len(kept) : restored.end]


def check_groups(restored: Restored) -> None:
    """Nobody is known any more, and nothing is skipped."""
    for group in restored.groups():
        assert group.name == GROUP
        assert not group.members
        assert group.generation > 1_000_000
        for (name, number), committed in group.offsets.items():
            stream = restored.image.streams.get(name)
            if stream is None or stream.stream_id != committed.topic_id:
                continue  # its coordinator forgets it
            restored.records(name, number)
            assert committed.offset <= restored.end


@settings(max_examples=100, deadline=None)
@given(turns, takes)
@example([], [("all", [[("publish", "A", 0)], [("commit", "A", 0)]] * 12, None, BackupOptions())])
@example([], [("all", [[("publish", "A", 0), ("commit", "A", 0)]] * 12, None, BackupOptions())])
@example([], [(OFFSETS_STREAM, [[("publish", "A", 0), ("commit", "A", 0)]], None, BackupOptions())])
@example([], [("z", [[("publish", "z", 0)] * 9], None, BackupOptions())])
@example([[("publish", "A", 0)]], [("all", [[]] * 5 + [AGAIN], 9, BackupOptions())])
@example([], [("all", [[("again", "A")]] * 99, None, BackupOptions())])
@example([], GROWN)
def test_nothing_is_skipped_or_mixed_up_in_what_is_made_of_a_backup(
    before: list[list[tuple[str, ...]]],
    more: list[tuple[str, list[list[tuple[str, ...]]], int | None, BackupOptions]],
) -> None:
    cluster = BackedUpCluster()
    for name in NAMES:
        cluster.create(name)
        cluster.publish(name, 0)
        cluster.commit(name, 0)
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        folder, path = Path(directory, "backup"), Path(directory, "node")
        assert taken(folder, cluster, iter([]), BackupOptions()) == []
        for deeds_now in before:
            for deed in deeds_now:
                with contextlib.suppress(StreamlogError):
                    do(cluster, deed)
        for what, meanwhile, killed_at, wish in more:
            names = frozenset() if what == "all" else frozenset({what})
            wish = BackupOptions(names, wish.full, wish.prune)  # noqa: PLW2901
            problems = taken(folder, cluster, iter(meanwhile), wish, killed_at)
            with BackupFolder.open(folder) as opened:
                checked = verify_backup(opened)
            assert checked.problems == []
            if problems == [] and what == "all":
                event("a whole run")
                assert checked.too_far == []
        with BackupFolder.open(folder) as opened:
            if checked_any := verify_backup(opened).too_far:
                event(f"offsets too far: {bool(checked_any)}")
            restore_cluster(opened, {ONE: path})
        restored = Restored(path)
        check_records(restored, cluster)
        check_groups(restored)
