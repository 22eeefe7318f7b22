import struct

import pytest
from crc32c import crc32c
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streamlog.errors import CorruptBatch
from streamlog.log.encryption.cipher import OVERHEAD_BYTES, BatchCipher, is_encrypted
from streamlog.record.batch import ENCRYPTED, HEADER_BYTES, check_batch, read_header
from streamlog.record.compacted import gap
from tests.log_folder import make_batch

KEY = bytes(range(32))
CIPHER = BatchCipher(KEY)
BATCH = make_batch(7, [b"something secret", b"more"], timestamp_ms=5, epoch=3)


def resealed(batch: bytes, at: int, mask: int = 1) -> bytes:
    """With a bit changed by somebody who makes the checksum fit again."""
    changed = bytearray(batch)
    changed[at] ^= mask
    changed[17:21] = struct.pack(">I", crc32c(changed[21:]))
    return bytes(changed)


def test_there_and_back() -> None:
    stored = CIPHER.encrypted(BATCH)
    assert is_encrypted(stored)
    assert not is_encrypted(BATCH)
    assert len(stored) == len(BATCH) + OVERHEAD_BYTES
    assert b"secret" not in stored
    assert CIPHER.decrypted(stored) == BATCH


def test_a_twin_reads_it_by_the_description_alone() -> None:
    """RFC-like: header without length and checksum is bound; checksum and records are hidden."""
    stored = CIPHER.encrypted(BATCH)
    bound = stored[:8] + stored[12:17] + stored[21:61]
    clear = AESGCM(KEY).decrypt(stored[61:73], stored[73:], bound)
    assert clear == BATCH[17:21] + BATCH[61:]


def test_the_header_stays_in_the_clear() -> None:
    stored = check_batch(CIPHER.encrypted(BATCH))
    before = read_header(BATCH)
    assert stored == before._replace(
        batch_length=before.batch_length + OVERHEAD_BYTES,
        crc=stored.crc,
        attributes=before.attributes | ENCRYPTED,
    )


def test_the_same_batch_never_looks_the_same() -> None:
    assert CIPHER.encrypted(BATCH)[HEADER_BYTES:] != CIPHER.encrypted(BATCH)[HEADER_BYTES:]


@pytest.mark.parametrize("at", [0, 7, 12, 15, 21, 23, 27, 35, 43, 51, 53, 57, 61, 72, 73, -1])
def test_nothing_is_changed_unseen(at: int) -> None:
    """Be it offset, epoch, time, producer, count, nonce, records or tag."""
    stored = CIPHER.encrypted(BATCH)
    with pytest.raises(CorruptBatch, match="does not decrypt"):
        CIPHER.decrypted(resealed(stored, at if at >= 0 else len(stored) - 1))


def test_of_another_key() -> None:
    with pytest.raises(CorruptBatch, match="offset 7"):
        BatchCipher(bytes(32)).decrypted(CIPHER.encrypted(BATCH))


def test_what_has_no_records_stays_as_it_is() -> None:
    hole = gap(3, 9, leader_epoch=1, max_timestamp_ms=5)
    assert CIPHER.encrypted(hole) == hole
    assert CIPHER.decrypted(hole) == hole


def test_some_are_encrypted_and_some_not() -> None:
    one, two, three = (make_batch(offset, 1) for offset in (0, 1, 2))
    cipher = BatchCipher(KEY, since=2)
    run = cipher.encrypted(one) + two + cipher.encrypted(three)
    with pytest.raises(CorruptBatch, match="offset 2 is in the clear, and all from offset 2 on"):
        cipher.decrypted_all(one + two + make_batch(2, 1))
    assert cipher.decrypted_all(run) == one + two + three
    assert CIPHER.decrypted_all(b"") == b""


def test_a_run_that_is_cut() -> None:
    run = CIPHER.encrypted(BATCH)
    with pytest.raises(CorruptBatch, match="cut"):
        CIPHER.decrypted_all(run + run[:70])


def test_a_batch_too_short_to_be_encrypted() -> None:
    marked = resealed(BATCH, 21, ENCRYPTED >> 8)
    with pytest.raises(CorruptBatch):
        CIPHER.decrypted(marked[: HEADER_BYTES + 5])


def test_all_of_a_run() -> None:
    one, two = make_batch(0, 1), make_batch(1, 3)
    parts = CIPHER.encrypted_all(one + two, [len(one), len(one) + len(two)])
    assert [CIPHER.decrypted(part) for part in parts] == [one, two]
