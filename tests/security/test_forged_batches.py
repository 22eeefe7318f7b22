"""A batch in the clear where all was encrypted was put there by somebody without the key: no reader
hands it out.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from crc32c import crc32c

from streamlog.arrow.files.segment_piece import OpenedPieces
from streamlog.backup.batch_file import opened_batch
from streamlog.errors import CorruptBatch, CorruptFile, EncryptionKeyMissing, StorageFailed
from streamlog.log.compaction.batch_reader import read_batches
from streamlog.log.encryption import key_file
from streamlog.log.encryption.key_file import NO_SCOPE, scope_of
from streamlog.log.encryption.opener import SegmentOpener
from streamlog.log.encryption.rewrap import Rewrap
from streamlog.log.log import PartitionLog
from streamlog.log.manifest import MANIFEST_NAME
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.tools.dump import DumpedBatch, DumpedDamage, dump
from streamlog.log.tools.verify import FolderFinding, verify
from streamlog.record.batch import batches, read_header
from streamlog.record.codec import iter_records
from tests.log_folder import a_key_ring, append, sync
from tests.record_batches import HandRecord, hand_batch

CLEAR = LogSettings(segment_bytes=1 << 20)
HIDDEN = replace(CLEAR, encrypts=True)
OFFSETS = 6
FORGED = 4


def opened(
    folder: Path, settings: LogSettings = HIDDEN, synced: int = OFFSETS, scope: str = NO_SCOPE
) -> PartitionLog:
    disk = OsDisk()
    files = FilePool(disk, 16, a_key_ring())
    return PartitionLog.open(
        folder, settings, disk=disk, files=files, recovery_point=synced, key_scope=scope
    )


def forged_in(folder: Path, encrypted_from: int) -> Path:
    """Encrypted from that offset on, and one batch of it replaced."""
    log = opened(folder, CLEAR, 0)
    for offset in range(OFFSETS):
        log.settings = HIDDEN if offset >= encrypted_from else CLEAR
        append(log, [b"%d" % offset * 60])
    sync(log)
    log.close()
    (path,) = folder.glob("*.log")
    return replaced_in(path)


def replaced_in(path: Path) -> Path:
    """The batch at ``FORGED`` is another one, in the clear."""
    data, position = bytearray(path.read_bytes()), 0
    for header, batch in batches(bytes(data)):
        if header.base_offset == FORGED:
            sizes = (hand_batch([HandRecord(b"f" * size)], FORGED) for size in range(200))
            forged = next(it for it in sizes if len(it) == len(batch))  # all else stays as it was
            data[position : position + len(batch)] = forged
        position += len(batch)
    path.write_bytes(data)
    return path


Reader = Callable[[Path], list[int]]
"""The offsets that somebody is handed of the segment."""


def by_a_node(path: Path) -> list[int]:
    log = opened(path.parent)
    try:
        with log.read(0, 1 << 20, OFFSETS) as part:
            return [header.base_offset for header, _ in batches(part.read())]
    finally:
        log.close()


def by_compaction(path: Path) -> list[int]:
    log, file = opened(path.parent), OsDisk().open(str(path), writable=False)
    try:
        (segment,) = log.segments
        return [it.base_offset for it, _ in read_batches(file, segment, lambda _: None)]
    finally:
        file.close()
        log.close()


def opener(path: Path) -> SegmentOpener:
    return SegmentOpener(str(path), a_key_ring(), OsDisk().read_small)


def by_a_backup(path: Path) -> list[int]:
    keys = opener(path)
    found = (opened_batch(bytes(batch), keys) for _, batch in batches(path.read_bytes()))
    return [header.base_offset for header, _ in found]


def by_spark(path: Path) -> list[int]:
    pieces = OpenedPieces(opener(path), 0, OFFSETS, check_crc=True)
    data, found = memoryview(path.read_bytes()), list[int]()
    position = 0
    while position < len(data):
        piece = pieces.piece(data[position:], position)
        found += [header.base_offset for header, _ in batches(bytes(piece.data))]
        position = piece.position(len(piece.data))
    return found


@pytest.mark.parametrize("encrypted_from", [0, 2, FORGED])
@pytest.mark.parametrize("read", [by_a_node, by_compaction, by_a_backup, by_spark])
def test_no_reader_hands_it_out(tmp_path: Path, read: Reader, encrypted_from: int) -> None:
    path = forged_in(tmp_path, encrypted_from)
    with pytest.raises(CorruptBatch, match=rf"offset {FORGED} is in the clear"):
        read(path)


@pytest.mark.parametrize("read", [by_a_node, by_compaction, by_a_backup, by_spark])
def test_what_was_there_before_encryption_is_read(tmp_path: Path, read: Reader) -> None:
    """The batch at ``FORGED`` is from before it, too, and as good as any in a log in the clear."""
    assert read(forged_in(tmp_path, FORGED + 1)) == [*range(OFFSETS)]


@pytest.mark.parametrize("read", [by_a_node, by_compaction, by_a_backup, by_spark])
def test_what_is_written_again_behind_a_cut_is_bound(tmp_path: Path, read: Reader) -> None:
    """Encryption began at 5, and then the log was cut at 3: from there on all is encrypted."""
    log = opened(tmp_path, CLEAR, 0)
    for offset in range(OFFSETS):
        log.settings = HIDDEN if offset >= 5 else CLEAR
        append(log, [b"%d" % offset * 60])
    log.truncate_to(3)
    for offset in range(3, OFFSETS):
        append(log, [b"%d" % offset * 60])
    sync(log)
    log.close()
    (path,) = tmp_path.glob("*.log")
    assert read(path) == [*range(OFFSETS)]
    with pytest.raises(CorruptBatch, match=rf"offset {FORGED} is in the clear, .* offset 3 on"):
        read(replaced_in(path))


def test_where_encryption_is_turned_on_again_is_bound(tmp_path: Path) -> None:
    log = opened(tmp_path, HIDDEN, 0)
    append(log, [b"x"])
    log.truncate_to(0)
    for offset in range(OFFSETS):
        log.settings = HIDDEN if offset >= 1 else CLEAR
        append(log, [b"%d" % offset * 60])
    sync(log)
    log.close()
    (path,) = tmp_path.glob("*.log")
    assert by_a_node(path) == [*range(OFFSETS)]
    with pytest.raises(CorruptBatch, match=rf"offset {FORGED} is in the clear, .* offset 1 on"):
        by_a_node(replaced_in(path))


ALWAYS = replace(HIDDEN, segment_bytes=300, encrypts_all=True)
"""The stream has been encrypted since it was made, which the cluster's metadata say."""


def segments_of(folder: Path, settings: LogSettings = ALWAYS) -> list[Path]:
    """The files of a log of several segments, closed."""
    log = opened(folder, settings, 0)
    for offset in range(OFFSETS):
        append(log, [b"%d" % offset * 60])
    sync(log)
    log.close()
    return sorted(folder.glob("*.log"))


def put_in_the_clear(path: Path, offset: int) -> None:
    """A whole segment, without its data key, and without what the manifest knows of it."""
    path.write_bytes(hand_batch([HandRecord(b"forged" * 9)], offset))
    for beside in (".key", ".index", ".timeindex"):
        path.with_suffix(beside).unlink(missing_ok=True)
    (path.parent / MANIFEST_NAME).unlink()


def read_at(log: PartitionLog, offset: int) -> bytes:
    with log.read(offset, 1 << 20, OFFSETS) as part:
        return part.read()


def test_a_segment_in_the_clear_is_damage_where_all_was_encrypted(tmp_path: Path) -> None:
    paths = segments_of(tmp_path)
    assert len(paths) == OFFSETS
    put_in_the_clear(paths[2], 2)
    log = opened(tmp_path, replace(ALWAYS, encrypts_all=False))
    assert b"forged" in read_at(log, 2), "nobody could tell by the folder alone"
    log.close()
    log = opened(tmp_path, ALWAYS)
    with pytest.raises(CorruptBatch, match="damaged"):
        read_at(log, 2)
    assert read_at(log, 1)
    assert read_at(log, 3)
    (damage,) = (it for segment in log.segments for it in segment.damages)
    assert (damage.offset, damage.end_offset) == (2, 3)
    assert "in the clear" in damage.problem
    log.close()


def test_nothing_is_appended_behind_a_forged_end(tmp_path: Path) -> None:
    put_in_the_clear(segments_of(tmp_path)[-1], OFFSETS - 1)
    for synced in (OFFSETS, 0):  # however much whoever did that has said to be synced
        with pytest.raises(StorageFailed, match="in the clear, and no data key"):
            opened(tmp_path, ALWAYS, synced)


def test_the_key_of_a_segment_that_may_be_in_the_clear_opens_no_other(tmp_path: Path) -> None:
    """Whoever has the disk has such keys, too: of streams that were encrypted later."""
    other = segments_of(tmp_path / "other", replace(ALWAYS, encrypts_all=False))[2]
    log = opened(tmp_path / "other", HIDDEN)
    next(it for it in log.segments if it.base_offset == 2).key.unbind()  # type: ignore[union-attr]
    log.close()
    path = segments_of(tmp_path / "ours")[2]
    put_in_the_clear(path, 2)
    path.with_suffix(".key").write_bytes(other.with_suffix(".key").read_bytes())
    log = opened(path.parent, ALWAYS)
    with pytest.raises(CorruptFile, match="all from offset 2 on was encrypted"):
        read_at(log, 2)
    log.close()


def test_a_log_that_is_wholly_encrypted_is_opened_as_ever(tmp_path: Path) -> None:
    segments_of(tmp_path)
    for synced in (OFFSETS, 3, 0):
        log = opened(tmp_path, ALWAYS, synced)
        assert [bool(read_at(log, offset)) for offset in range(OFFSETS)] == [True] * OFFSETS
        assert not any(it.damages for it in log.segments)
        log.close()


def test_commands_tell_it(tmp_path: Path) -> None:
    forged_in(tmp_path, 2)
    told = [it.problem for it in verify(tmp_path, a_key_ring()) if isinstance(it, FolderFinding)]
    assert len(told) == 1
    assert f"offset {FORGED} is in the clear" in told[0]
    items = list(dump(tmp_path, a_key_ring()))
    (damage,) = (it.damage for it in items if isinstance(it, DumpedDamage))
    assert "in the clear" in damage.problem
    values = [it.data for it in items if isinstance(it, DumpedBatch)]
    assert len(values) == OFFSETS - 1
    assert not any(b"fff" in (next(iter_records(it)).value or b"") for it in values)


def test_where_it_begins_cannot_be_moved(tmp_path: Path) -> None:
    path = forged_in(tmp_path, 0)
    key = path.with_suffix(".key")
    moved = key.read_bytes().replace(b"since 0\n", b"since 9\n").rpartition(b"crc32c ")[0]
    key.write_bytes(moved + b"crc32c %08x\n" % crc32c(moved))
    with pytest.raises(EncryptionKeyMissing, match="or the file was changed"):
        opener(path).opened(path.read_bytes()[: read_header(path.read_bytes()).size_bytes])


STREAM = UUID(int=7)
OTHERS = {
    "another partition": scope_of(STREAM, 1),
    "another stream": scope_of(UUID(int=8), 0),
    "nobody's": NO_SCOPE,
}


def filled(folder: Path, scope: str) -> tuple[Path, Path]:
    """A sealed segment and an active one, and a sidecar file; the segment's files."""
    log = opened(folder, HIDDEN, 0, scope)
    for offset in range(OFFSETS):
        if offset == FORGED:
            log.roll()
        append(log, [b"%d" % offset * 60])
    log.beside.write("sidecar", b"content", encrypts=True)
    sync(log)
    log.close()
    path = min(folder.glob("*.log"))
    return path, path.with_suffix(".key")


@pytest.mark.parametrize("which", OTHERS)
def test_a_segment_of_another_partition_with_its_key_is_not_served(
    tmp_path: Path, which: str
) -> None:
    """Its offsets are the same, and this node's key opens its data key."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "other").mkdir()
    own = scope_of(STREAM, 0)
    mine = filled(tmp_path / "mine", own)
    others = filled(tmp_path / "other", OTHERS[which])
    for my_file, their_file in zip(mine, others, strict=True):
        my_file.write_bytes(their_file.read_bytes())
    (tmp_path / "mine" / "sidecar").write_bytes((tmp_path / "other" / "sidecar").read_bytes())
    (tmp_path / "mine" / MANIFEST_NAME).unlink()  # it has the checksums of the segment's ends
    log = opened(tmp_path / "mine", HIDDEN, OFFSETS, own)
    with (
        pytest.raises(CorruptFile, match="of another partition"),
        log.read(0, 1 << 20, OFFSETS) as part,
    ):
        part.read()
    with pytest.raises(CorruptFile, match="of another partition"):
        log.beside.read("sidecar")
    with log.read(FORGED, 1 << 20, OFFSETS) as part:
        assert len(part.read())
    log.close()


def test_of_which_partition_a_key_is_cannot_be_changed(tmp_path: Path) -> None:
    own, folder = scope_of(STREAM, 0), tmp_path / "mine"
    folder.mkdir()
    (tmp_path / "other").mkdir()
    _, key = filled(folder, own)
    _, theirs = filled(tmp_path / "other", scope_of(STREAM, 1))
    changed = key_file.decode(theirs.read_bytes(), "")._replace(scope=own)
    key.write_bytes(key_file.encode(changed))
    log = opened(folder, HIDDEN, OFFSETS, own)
    with pytest.raises(EncryptionKeyMissing), log.read(0, 1 << 20, FORGED) as part:
        part.read()
    log.close()


def test_a_key_stays_of_its_partition_whatever_is_done_with_it(tmp_path: Path) -> None:
    """Bound from another offset on, unbound, and wrapped by another key."""
    own = scope_of(STREAM, 0)
    filled(tmp_path, own)
    log = opened(tmp_path, HIDDEN, OFFSETS, own)
    for segment in log.segments:
        rewrap = Rewrap(segment, log._pool)
        rewrap.prepare()
        assert rewrap.commit(log.segments)
        rewrap.finish()
        assert segment.key is not None
        segment.key.unbind()
        segment.key.bound_from(segment.base_offset)
        assert segment.key.wrapped().scope == own
    log.close()
    log = opened(tmp_path, HIDDEN, OFFSETS, own)
    with log.read(0, 1 << 20, OFFSETS) as part:
        assert len(part.read())
    log.close()
