import contextlib
from pathlib import Path

import pytest

from streamlog.backup import piece as pieces
from streamlog.backup.manifest import PartitionBackup
from streamlog.backup.piece import PieceWriter, batches_of, check_piece
from streamlog.errors import CorruptBatch, CorruptFile
from streamlog.record.batch import read_header
from tests.log_folder import make_batch

EMPTY = PartitionBackup(number=0, log_start_offset=0)


def write(folder: Path, known: PartitionBackup, count: int, *, epoch: int = 0) -> PartitionBackup:
    with contextlib.closing(PieceWriter(folder, known)) as writer:
        for offset in range(writer.next_offset, writer.next_offset + count):
            batch = make_batch(offset, [b"%d" % offset * 50], epoch=epoch)
            writer.add(read_header(batch), batch)
        kept = writer.finish()
        return known.model_copy(update={"pieces": kept, "last_epoch": writer.last_epoch})


def offsets(folder: Path, known: PartitionBackup) -> list[int]:
    return [
        header.base_offset
        for piece in known.pieces
        for header, _ in batches_of(folder / piece.name, piece)
    ]


def test_a_piece_grows_until_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1_000)
    known = EMPTY
    for round_ in range(5):
        known = write(tmp_path, known, 3, epoch=round_)
        assert offsets(tmp_path, known) == list(range(3 * (round_ + 1)))
        for piece in known.pieces:
            check_piece(tmp_path / piece.name, piece)
    assert 1 < len(known.pieces) < 5
    assert all(piece.size_bytes <= 1_000 for piece in known.pieces)
    assert known.last_epoch == 4


def test_what_was_not_finished_is_cut_off_by_the_next(tmp_path: Path) -> None:
    known = write(tmp_path, EMPTY, 3)
    path = tmp_path / known.pieces[0].name
    with path.open("ab") as file:
        file.write(b"killed in the middle" * 100)
    check_piece(path, known.pieces[0])  # the manifest knows nothing of it
    after = write(tmp_path, known, 2)
    assert offsets(tmp_path, after) == [0, 1, 2, 3, 4]
    assert path.stat().st_size == after.pieces[0].size_bytes


def test_nothing_new_touches_nothing(tmp_path: Path) -> None:
    known = write(tmp_path, EMPTY, 3)
    before = (tmp_path / known.pieces[0].name).stat().st_mtime_ns
    assert write(tmp_path, known, 0) == known
    assert (tmp_path / known.pieces[0].name).stat().st_mtime_ns == before


@pytest.mark.parametrize("at", [0, 12, 70, -1])
def test_a_flipped_byte_is_found_before_anything_is_added(tmp_path: Path, at: int) -> None:
    known = write(tmp_path, EMPTY, 3)
    path = tmp_path / known.pieces[0].name
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=path.name):
        check_piece(path, known.pieces[0])
    with pytest.raises(CorruptFile, match=path.name):
        write(tmp_path, known, 1)
    assert path.read_bytes() == data


def test_a_missing_and_a_short_file(tmp_path: Path) -> None:
    known = write(tmp_path, EMPTY, 3)
    path = tmp_path / known.pieces[0].name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptFile, match="missing at its end"):
        check_piece(path, known.pieces[0])
    path.unlink()
    with pytest.raises(CorruptFile, match="is missing"):
        check_piece(path, known.pieces[0])


def test_a_hole_is_refused(tmp_path: Path) -> None:
    known = write(tmp_path, EMPTY, 1)
    batch = make_batch(5)
    with (
        contextlib.closing(PieceWriter(tmp_path, known)) as writer,
        pytest.raises(CorruptBatch, match="offset 5, not 1"),
    ):
        writer.add(read_header(batch), batch)
