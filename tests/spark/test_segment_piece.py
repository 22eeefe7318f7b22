"""Pieces of segments, cut anywhere, some batches encrypted: against what was written."""

from itertools import accumulate, pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.arrow.files.segment_piece import OpenedPieces, SegmentPiece, is_encrypted_at
from streamlog.errors import CorruptBatch, EncryptionKeyMissing
from streamlog.log.encryption import key_file
from streamlog.log.encryption.cipher import BatchCipher
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.encryption.opener import SegmentOpener
from streamlog.log.encryption.segment_key import NEVER
from tests.log_folder import a_key_ring
from tests.record_batches import HandRecord, hand_batch

DATA_KEY, WRAPPED = a_key_ring().new_data_key(NEVER)
AT = 4_000


class Laid(NamedTuple):
    """A batch as it was appended, as it lies there, and its offsets."""

    clear: bytes
    lying: bytes
    offset: int
    next_offset: int


@st.composite
def segments(draw: st.DrawFn) -> list[Laid]:
    cipher, offset, found = BatchCipher(DATA_KEY), 0, []
    for size, encrypted in draw(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1)):
        clear = hand_batch([HandRecord(b"x" * size)] * size, offset)
        found.append(
            Laid(clear, cipher.encrypted(clear) if encrypted else clear, offset, offset + size)
        )
        offset += size
    return found


def opening(keys: KeyRing, start: int = 0, end: int = 2**63 - 1) -> OpenedPieces:
    opener = SegmentOpener("/x.log", keys, lambda _: key_file.encode(WRAPPED))
    return OpenedPieces(opener, start, end, check_crc=True)


@given(segments(), st.data())
def test_whole_batches_come_as_they_were_appended_and_know_their_places(
    laid: list[Laid], data: st.DataObject
) -> None:
    lying = b"".join(it.lying for it in laid)
    last = laid[-1].next_offset + 1
    start, end = sorted(data.draw(st.tuples(st.integers(0, last), st.integers(0, last))))
    cut = data.draw(st.integers(0, len(lying)))
    piece = opening(a_key_ring(), start, end).piece(memoryview(lying[:cut]), AT)
    ends = [*accumulate(len(it.lying) for it in laid)]
    whole = [
        (it.clear if it.next_offset > start else it.lying, position - len(it.lying))
        for it, position in zip(laid, ends, strict=True)
        if position <= cut and it.offset < end
    ]
    if not whole:
        assert (piece.data, piece.position(0)) == (lying[:cut], AT)
        return
    assert piece.data == b"".join(batch for batch, _ in whole)
    starts = [0, *accumulate(len(batch) for batch, _ in whole)]
    assert [piece.position(at) - AT for at in starts[:-1]] == [place for _, place in whole]
    assert piece.position(starts[-1]) - AT == whole[-1][1] + len(laid[len(whole) - 1].lying)


@given(segments(), st.data())
def test_a_piece_ends_before_a_batch_that_does_not_open(
    laid: list[Laid], data: st.DataObject
) -> None:
    sealed = [index for index, it in enumerate(laid) if it.lying != it.clear]
    lying = bytearray(b"".join(it.lying for it in laid))
    bounds = [*pairwise([0, *accumulate(len(it.lying) for it in laid)])]
    if not sealed:
        assert opening(a_key_ring()).piece(memoryview(lying), AT).data == lying
        return
    chosen = data.draw(st.sampled_from(sealed))
    first, end = bounds[chosen]
    lying[data.draw(st.integers(first + 61, end - 1))] ^= 1
    pieces = opening(a_key_ring())
    if first:
        assert pieces.piece(memoryview(lying), AT).data == b"".join(
            it.clear for it in laid[:chosen]
        )
    with pytest.raises(CorruptBatch, match=rf"offset {laid[chosen].offset}: its checksum is wrong"):
        pieces.piece(memoryview(lying)[first:], AT + first)


def test_without_the_key_no_piece_comes() -> None:
    sealed = BatchCipher(DATA_KEY).encrypted(hand_batch([HandRecord(b"x")]))
    with pytest.raises(EncryptionKeyMissing):
        opening(KeyRing()).piece(memoryview(sealed), AT)


def test_a_header_says_whether_it_is_encrypted() -> None:
    clear = hand_batch([HandRecord(b"x")])
    data = clear + BatchCipher(DATA_KEY).encrypted(clear)
    assert not is_encrypted_at(data, 0)
    assert is_encrypted_at(data, len(clear))
    assert not is_encrypted_at(data[: len(clear) + 22], len(clear))
    assert SegmentPiece(clear, AT).position(5) == AT + 5
