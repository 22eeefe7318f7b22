import contextlib
from pathlib import Path

import pytest

from streamlog.backup import batch_file as pieces
from streamlog.backup.batch_file import PieceWriter, batches_of, check_piece
from streamlog.backup.manifest import PartitionBackup
from streamlog.errors import CorruptBatch, CorruptFile, EncryptionKeyMissing
from streamlog.log.encryption import key_file
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.record.batch import read_header
from tests.log_folder import a_key_ring, make_batch

EMPTY = PartitionBackup(number=0, log_start_offset=0)
ALL_KEYS = KeyRing({name: name.encode().ljust(32, b".") for name in ("k1", "k2")}, "k2")


@pytest.fixture(params=[None, "k1"], ids=["clear", "encrypted"], autouse=True)
def keys(request: pytest.FixtureRequest) -> KeyRing | None:
    return request.param and a_key_ring(request.param)


def write(
    folder: Path,
    known: PartitionBackup,
    count: int,
    keys: KeyRing | None,
    *,
    epoch: int = 0,
) -> PartitionBackup:
    with contextlib.closing(PieceWriter(folder, known, keys)) as writer:
        for offset in range(writer.next_offset, writer.next_offset + count):
            batch = a_batch(offset, epoch)
            writer.add(read_header(batch), batch)
        kept = writer.finish()
        return known.model_copy(update={"pieces": kept, "last_epoch": writer.last_epoch})


def offsets(folder: Path, known: PartitionBackup, keys: KeyRing | None = ALL_KEYS) -> list[int]:
    return [
        header.base_offset
        for piece in known.pieces
        for header, batch in batches_of(folder / piece.name, piece, keys or KeyRing())
        if bytes(batch) == a_batch(header.base_offset, header.leader_epoch)
    ]


def a_batch(offset: int, epoch: int = 0) -> bytes:
    return make_batch(offset, [b"%d" % offset * 50], epoch=epoch)


def test_a_piece_grows_until_it_is_full(
    tmp_path: Path, keys: KeyRing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1_000)
    known = EMPTY
    for round_ in range(5):
        known = write(tmp_path, known, 3, keys, epoch=round_)
        assert offsets(tmp_path, known) == list(range(3 * (round_ + 1)))
        for piece in known.pieces:
            check_piece(tmp_path / piece.name, piece, keys)
    assert 1 < len(known.pieces) < 5
    assert all(piece.size_bytes <= 1_000 for piece in known.pieces)
    assert known.last_epoch == 4


def test_what_was_not_finished_is_cut_off_by_the_next(tmp_path: Path, keys: KeyRing | None) -> None:
    known = write(tmp_path, EMPTY, 3, keys)
    path = tmp_path / known.pieces[0].name
    with path.open("ab") as file:
        file.write(b"killed in the middle" * 100)
    check_piece(path, known.pieces[0])  # the manifest knows nothing of it
    after = write(tmp_path, known, 2, keys)
    assert offsets(tmp_path, after) == [0, 1, 2, 3, 4]
    assert path.stat().st_size == after.pieces[0].size_bytes


def test_nothing_new_touches_nothing(tmp_path: Path, keys: KeyRing | None) -> None:
    known = write(tmp_path, EMPTY, 3, keys)
    before = (tmp_path / known.pieces[0].name).stat().st_mtime_ns
    assert write(tmp_path, known, 0, keys) == known
    assert (tmp_path / known.pieces[0].name).stat().st_mtime_ns == before


@pytest.mark.parametrize("at", [0, 12, 70, -1])
def test_a_flipped_byte_is_found_before_anything_is_added(
    tmp_path: Path, keys: KeyRing | None, at: int
) -> None:
    known = write(tmp_path, EMPTY, 3, keys)
    path = tmp_path / known.pieces[0].name
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=path.name):
        check_piece(path, known.pieces[0])
    with pytest.raises(CorruptFile, match=path.name):
        write(tmp_path, known, 1, keys)
    assert path.read_bytes() == data


def test_a_missing_and_a_short_file(tmp_path: Path, keys: KeyRing | None) -> None:
    known = write(tmp_path, EMPTY, 3, keys)
    path = tmp_path / known.pieces[0].name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptFile, match="missing at its end"):
        check_piece(path, known.pieces[0])
    path.unlink()
    with pytest.raises(CorruptFile, match="is missing"):
        check_piece(path, known.pieces[0])


def test_a_hole_is_refused(tmp_path: Path, keys: KeyRing | None) -> None:
    known = write(tmp_path, EMPTY, 1, keys)
    batch = make_batch(5)
    with (
        contextlib.closing(PieceWriter(tmp_path, known)) as writer,
        pytest.raises(CorruptBatch, match="offset 5, not 1"),
    ):
        writer.add(read_header(batch), batch)


def test_nothing_of_an_encrypted_piece_can_be_read_without_its_key(tmp_path: Path) -> None:
    known = write(tmp_path, EMPTY, 12, a_key_ring())
    (piece,) = known.pieces
    path = tmp_path / piece.name
    assert piece.encrypted
    assert b"1111111" not in path.read_bytes()
    check_piece(path, piece)
    for keys in (KeyRing(), a_key_ring("k2")):
        with pytest.raises(EncryptionKeyMissing, match=r"'k1'.*give it as --key NAME=SOURCE"):
            check_piece(path, piece, keys)
        with pytest.raises(EncryptionKeyMissing, match=r"'k1'.*give it as --key NAME=SOURCE"):
            offsets(tmp_path, known, keys)


def test_other_keys_and_none_at_all_begin_other_pieces(tmp_path: Path) -> None:
    known, kinds = EMPTY, (None, a_key_ring(), a_key_ring(), ALL_KEYS, a_key_ring("k2"), None)
    for keys in kinds:
        known = write(tmp_path, known, 2, keys)
    found = [(piece.base_offset, piece.encrypted) for piece in known.pieces]
    assert found == [(0, False), (2, True), (6, True), (10, False)]
    assert offsets(tmp_path, known) == list(range(12))
    names = {
        path.name: key_file.decode(path.read_bytes(), "").key_name for path in keys_in(tmp_path)
    }
    assert names == {f"{2:020d}.key": "k1", f"{6:020d}.key": "k2"}


def keys_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.key"))


def test_a_data_key_that_is_gone_or_another_ones(tmp_path: Path) -> None:
    keys = a_key_ring()
    known = write(tmp_path, EMPTY, 2, keys)
    (piece,) = known.pieces
    path = tmp_path / piece.name
    (key,) = keys_in(tmp_path)
    other = write(tmp_path / "other", EMPTY, 1, keys)
    key.write_bytes((tmp_path / "other" / other.pieces[0].key_name).read_bytes())
    check_piece(path, piece)
    with pytest.raises(CorruptFile, match=r"position 0: .*does not decrypt"):
        check_piece(path, piece, keys)
    key.unlink()
    with pytest.raises(CorruptFile, match=r"\.key is missing"):
        check_piece(path, piece)
    with pytest.raises(CorruptFile, match=r"\.key is missing"):
        write(tmp_path, known, 1, keys)
