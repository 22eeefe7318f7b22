"""A block's bytes come back as they were, and others are found out, with one clear error."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import BrokenChain, CorruptBlock
from streamlog.ledger.core.block import BlockMetadata
from streamlog.ledger.core.chain import ChainLink, sealed
from streamlog.ledger.core.encoding import (
    decode_block,
    decode_records,
    encode_block,
    encode_record,
    record_bytes,
)
from streamlog.ledger.core.entry import Message
from streamlog.ledger.core.verifier import ChainVerifier, verify_chain
from streamlog.record.codec import Record
from tests.naive_ledger import encoded
from tests.property.ledger_strategies import LedgerStream, ledger_streams, messages

int64 = st.integers(-(2**63), 2**63 - 1)
records = st.builds(
    lambda offset, time, message: Record(offset, time, *message), int64, int64, messages
)
run = settings(max_examples=300, deadline=None)


def sealed_data(data: bytes, count: int, end_offset: int = 1) -> bytes:
    """A block whose hashes are right, whatever is in it."""
    metadata = BlockMetadata(0, end_offset, end_offset, 0)
    return encode_block(sealed(ChainLink("c", 0, bytes(32)), data, count, metadata))


@run
@given(st.lists(records, max_size=5))
def test_records_come_back(given_records: list[Record]) -> None:
    data = b"".join(map(encode_record, given_records))
    assert list(decode_records(data)) == given_records
    assert data == b"".join(map(encoded, given_records))


@run
@given(messages)
def test_the_size_of_a_record_is_known_before_it_has_an_offset(message: Message) -> None:
    assert record_bytes(message) == len(encode_record(Record(0, 0, *message)))


@run
@given(st.binary(max_size=300))
def test_what_is_no_block_is_one_clear_error(data: bytes) -> None:
    with pytest.raises(CorruptBlock):
        decode_block(data)


@run
@given(st.binary(max_size=120))
def test_data_that_are_no_records_are_one_clear_error(data: bytes) -> None:
    """And those that are, are their only encoding."""
    block = decode_block(sealed_data(data, 1))
    try:
        found = list(decode_records(block.data))
    except CorruptBlock:
        return
    assert b"".join(map(encode_record, found)) == data


@run
@given(stream=ledger_streams(20), choice=st.data())
def test_a_changed_byte_is_found(stream: LedgerStream, choice: st.DataObject) -> None:
    """By the verifier or, in the last block's header, by another tip."""
    blocks = list(stream.blocks)
    index = choice.draw(st.integers(0, len(blocks) - 1))
    block = bytearray(blocks[index])
    block[choice.draw(st.integers(0, len(block) - 1))] ^= 1 << choice.draw(st.integers(0, 7))
    blocks[index] = bytes(block)
    tip = verify_chain(stream.blocks).tip
    try:
        report = verify_chain(blocks)
    except (CorruptBlock, BrokenChain):
        return
    assert index == len(blocks) - 1
    assert report.tip != tip


@run
@given(stream=ledger_streams(20), choice=st.data())
def test_a_cut_or_longer_block_is_found(stream: LedgerStream, choice: st.DataObject) -> None:
    index = choice.draw(st.integers(0, len(stream.blocks) - 1))
    block = stream.blocks[index]
    end = choice.draw(st.integers(0, len(block) - 1))
    for broken in (block[:end], block + b"\0", b"\0" + block):
        with pytest.raises(CorruptBlock):
            verify_chain([*stream.blocks[:index], broken, *stream.blocks[index + 1 :]])


@run
@given(stream=ledger_streams(20), choice=st.data())
def test_blocks_out_of_place_are_found(stream: LedgerStream, choice: st.DataObject) -> None:
    """Left out, twice, or in another order; a chain may only end early."""
    numbers = choice.draw(st.lists(st.integers(0, len(stream.blocks) - 1), max_size=8))
    verifier = ChainVerifier()
    for place, number in enumerate(numbers):
        if number == place:
            verifier.take(stream.blocks[number])
            continue
        before = verifier.report()
        with pytest.raises(BrokenChain):
            verifier.take(stream.blocks[number])
        assert verifier.report() == before
        return
    assert verifier.report() == verify_chain(prefix(stream.blocks, len(numbers)))


def prefix(blocks: Sequence[bytes], height: int) -> Sequence[bytes]:
    return blocks[:height]
