import pytest

from streamlog.errors import BrokenChain, CorruptBlock
from streamlog.ledger.core.block import BlockMetadata
from streamlog.ledger.core.chain import ChainLink, ChainTip, configuration_in, find_genesis, sealed
from streamlog.ledger.core.encoding import decode_block, encode_block, encode_record
from streamlog.ledger.core.entry import Message, configuration, signed, time_to_cut
from streamlog.ledger.core.verifier import ChainReport, ChainVerifier, verify_chain
from tests.ledger_stream import ANN, EVE, channel, placed, plain, stream
from tests.oracles.offline_cut import cut_stream


def chain(*messages: Message) -> list[bytes]:
    records = stream([configuration(channel()), *messages])
    genesis = find_genesis(records)
    assert genesis is not None
    return [encode_block(block) for block in cut_stream(genesis, records)]


BLOCKS = chain(*plain(*[b"x"] * 6), configuration(channel(sequence=1)), *plain(*[b"y"] * 3))


def forged(tip: ChainTip, *messages: Message, is_configuration: bool = False) -> bytes:
    """A block that fits upon the tip, whatever is in it."""
    records = stream(messages, tip.next_offset)
    end = records[-1].offset + 1
    last = tip.height if is_configuration else tip.last_configuration
    metadata = BlockMetadata(tip.next_offset, end, end, last)
    data = b"".join(map(encode_record, records))
    return encode_block(
        sealed(ChainLink(tip.channel, tip.height, tip.hash), data, len(records), metadata)
    )


def test_a_chain_is_summed_up() -> None:
    tip = decode_block(BLOCKS[-1])
    assert verify_chain(BLOCKS) == ChainReport(5, tip.hash.hex(), 9, 2, channel(sequence=1))
    assert verify_chain([]) == ChainReport(0, "", 0, 0, None)


def test_it_can_go_on_from_a_tip() -> None:
    before = decode_block(BLOCKS[2])
    verifier = ChainVerifier(ChainTip.of(before), channel())
    for block in BLOCKS[3:]:
        verifier.take(block)
    assert verifier.report().tip == verify_chain(BLOCKS).tip
    assert verifier.config == configuration_in(decode_block(BLOCKS[3]))


def test_another_channel_is_told() -> None:
    with pytest.raises(BrokenChain, match="channel 'c' in that of 'd'"):
        verify_chain(BLOCKS, channel="d")


def test_a_chain_begins_with_its_genesis() -> None:
    with pytest.raises(BrokenChain, match="block 1 where the genesis"):
        verify_chain(BLOCKS[1:])
    lie = sealed(
        ChainLink("d", 0, bytes(32)), decode_block(BLOCKS[0]).data, 1, BlockMetadata(0, 1, 0, 0)
    )
    with pytest.raises(BrokenChain, match="block 0 is not the one"):
        verify_chain([encode_block(lie)])


@pytest.mark.parametrize(
    ("message", "is_configuration", "told"),
    [
        (time_to_cut(2, "n"), False, "is not ordinary"),
        (configuration(channel(sequence=2)), False, "is not ordinary"),
        (configuration(channel(sequence=2)), True, "signature of its administrators"),
        (configuration(channel(sequence=2), EVE), True, "is no administrator"),
        (configuration(channel(sequence=3), ANN), True, "where 2 follows"),
        (Message(None, b"x"), False, "wants a signature"),
        (signed(Message(None, b"x"), "c", EVE), False, "is no writer"),
    ],
)
def test_right_hashes_do_not_make_a_right_block(
    message: Message, is_configuration: bool, told: str
) -> None:
    closed = channel(sequence=1, writers=(ANN.identity,))
    verifier = ChainVerifier()
    for block in chain(configuration(closed)):
        verifier.take(block)
    assert verifier.tip is not None
    with pytest.raises(BrokenChain, match=told):
        verifier.take(forged(verifier.tip, message, is_configuration=is_configuration))
    verifier.take(forged(verifier.tip, signed(message._replace(headers=()), "c", ANN)))


def test_a_configuration_block_holds_nothing_else() -> None:
    verifier = ChainVerifier()
    verifier.take(BLOCKS[0])
    assert verifier.tip is not None
    update = configuration(channel(sequence=1))
    with pytest.raises(CorruptBlock, match="no configuration block"):
        verifier.take(forged(verifier.tip, update, *plain(b"x"), is_configuration=True))
    with pytest.raises(CorruptBlock, match="no configuration block"):
        verifier.take(forged(verifier.tip, *plain(b"x"), is_configuration=True))


def test_the_records_are_those_of_the_header() -> None:
    verifier = ChainVerifier()
    verifier.take(BLOCKS[0])
    tip = verifier.tip
    assert tip is not None
    records = [placed(message, offset) for offset, message in enumerate(plain(b"a", b"b"), 5)]
    data = b"".join(map(encode_record, records))
    backwards = b"".join(map(encode_record, reversed(records)))
    link = ChainLink("c", 1, tip.hash)
    for content, count, first, end in (
        (data, 1, 5, 7),
        (data, 2, 5, 8),
        (data, 2, 4, 7),
        (backwards, 2, 5, 7),
        (data + data, 2, 5, 7),
    ):
        lie = sealed(link, content, count, BlockMetadata(first, end, end, 0))
        with pytest.raises(BrokenChain, match="block 1"):
            verifier.take(encode_block(lie))
    verifier.take(encode_block(sealed(link, data, 2, BlockMetadata(5, 7, 7, 0))))
