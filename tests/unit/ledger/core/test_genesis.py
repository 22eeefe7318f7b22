import pytest

from streamlog.errors import CorruptBlock, InvalidChannelConfig
from streamlog.ledger.core.chain import configuration_in, find_genesis, genesis_block, is_genesis
from streamlog.ledger.core.entry import CONFIGURATION, KIND_HEADER, Message, configuration
from tests.ledger_stream import channel, placed, plain, stream
from tests.oracles.offline_cut import cut_stream


def test_the_first_configuration_of_sequence_0_is_the_genesis() -> None:
    first, second = channel(start_offset=1), channel()
    records = stream(
        [
            *plain(b"a"),
            configuration(channel(sequence=1)),
            Message(None, b"{", ((KIND_HEADER, CONFIGURATION),)),
            configuration(first),
            configuration(second),
        ]
    )
    genesis = find_genesis(records)
    assert genesis is not None
    assert genesis.number == 0
    assert genesis.is_configuration
    assert (genesis.metadata.first_offset, genesis.metadata.next_offset) == (3, 1)
    assert configuration_in(genesis) == first
    assert is_genesis(genesis)


def test_the_blocks_have_what_came_before_it_too() -> None:
    records = stream(
        [*plain(b"a", b"b"), configuration(channel(start_offset=1)), *plain(b"c", b"d")]
    )
    genesis = find_genesis(records)
    assert genesis is not None
    _, block = cut_stream(genesis, records)
    assert (block.metadata.first_offset, block.header.record_count) == (1, 3)


def test_no_genesis_begins_after_itself() -> None:
    assert find_genesis(stream([configuration(channel(start_offset=1))])) is None


def test_a_genesis_of_a_later_format_is_not_passed_over() -> None:
    text = channel().encode().replace(b'"format":1', b'"format":2')
    later = Message(None, text, ((KIND_HEADER, CONFIGURATION),))
    with pytest.raises(InvalidChannelConfig, match="offset 0 is of format 2"):
        find_genesis(stream([later, configuration(channel())]))


def test_a_block_of_ordinary_records_has_no_configuration() -> None:
    records = stream([configuration(channel()), *plain(b"a", b"b", b"c")])
    genesis = genesis_block(records[0])
    assert genesis is not None
    _, block = cut_stream(genesis, records)
    assert not is_genesis(block)
    with pytest.raises(CorruptBlock, match="block 1"):
        configuration_in(block)
    assert genesis_block(placed(plain(b"a")[0], 0)) is None
