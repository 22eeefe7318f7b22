from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from streamlog.errors import BrokenChain
from streamlog.ledger.core.block import Block, BlockMetadata
from streamlog.ledger.core.chain import ChainLink, ChainTip, check_next, sealed
from streamlog.ledger.core.cutter import BlockCut, CutReason
from streamlog.ledger.core.encoding import decode_block, encode_block, encode_header

TIP = ChainTip("c", 6, sha256(b"tip").digest(), next_offset=40, last_configuration=2)
CUT = BlockCut(b"data", 2, 41, 44, 45, CutReason.TIME)
NEXT = TIP.extended(CUT)


def another(link: ChainLink, metadata: BlockMetadata, count: int = 2) -> Block:
    return sealed(link, b"data", count, metadata)


def test_a_block_follows_from_the_tip_and_the_cut() -> None:
    check_next(TIP, NEXT)
    assert NEXT.header.data_hash == sha256(b"data").digest()
    assert NEXT.hash == sha256(encode_header(NEXT.header)).digest()
    assert ChainTip.of(NEXT) == ChainTip("c", 7, NEXT.hash, 45, 2)
    assert not NEXT.is_configuration
    assert decode_block(encode_block(NEXT)) == NEXT


def test_a_configuration_is_the_last_one_after_itself() -> None:
    block = TIP.extended(CUT._replace(is_configuration=True))
    check_next(TIP, block)
    assert block.is_configuration
    assert ChainTip.of(block).last_configuration == 7


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"channel": "d"}, "channel 'd' in that of 'c'"),
        ({"number": 8}, "block 8 where 7"),
        ({"number": 6}, "block 6 where 7"),
        ({"previous_hash": bytes(32)}, "not the hash of block 6"),
    ],
)
def test_another_place_is_told(change: dict[str, Any], told: str) -> None:
    link = ChainLink("c", 7, TIP.hash)._replace(**change)
    with pytest.raises(BrokenChain, match=told):
        check_next(TIP, another(link, NEXT.metadata))


@pytest.mark.parametrize(
    "change",
    [
        {"first_offset": 39},
        {"first_offset": 44},
        {"end_offset": 46},
        {"next_offset": 43},
        {"next_offset": -1},
        {"last_configuration": 1},
        {"last_configuration": 8},
        {"end_offset": 42},
    ],
)
def test_offsets_that_cannot_be_are_told(change: dict[str, int]) -> None:
    """Also where the hashes are right: nobody is to resume from a lie."""
    metadata = replace(NEXT.metadata, **change)
    with pytest.raises(BrokenChain, match="block 7"):
        check_next(TIP, another(ChainLink("c", 7, TIP.hash), metadata))


def test_a_block_has_a_record() -> None:
    with pytest.raises(BrokenChain, match="0 records"):
        check_next(TIP, another(ChainLink("c", 7, TIP.hash), NEXT.metadata, count=0))
