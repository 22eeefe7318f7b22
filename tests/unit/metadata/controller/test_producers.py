"""Blocks of producer ids: nobody gets one that another has had."""

from uuid import UUID

import pytest

from streamlog.errors import CorruptData, InvalidRequest
from streamlog.metadata.commands import AllocateProducerIds, decode_command, encode_command
from streamlog.metadata.controller import Decision, decide
from streamlog.metadata.controller.clients import PRODUCER_IDS_BLOCK
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import ProducerIdsAllocated
from streamlog.metadata.image.snapshot import decode_snapshot, encode_snapshot
from streamlog.model import NodeId


def allocate(image: MetadataImage, node: int) -> Decision:
    command = decode_command(encode_command(AllocateProducerIds(node_id=NodeId(node))))
    return decide(image, command, now_ms=0, new_id=UUID(int=1), live=set())


def test_blocks_never_overlap_not_even_over_a_snapshot() -> None:
    image = MetadataImage("c")
    given: list[int] = []
    for node in (1, 2, 1):
        decision = allocate(image, node)
        given += range(decision.result["first"], decision.result["end"])
        image = image.apply_all(decision.records, offset=image.offset, epoch=1)
        image = decode_snapshot(encode_snapshot(image), "here")
    assert given == list(range(3 * PRODUCER_IDS_BLOCK))


def test_ids_are_not_taken_back() -> None:
    image = MetadataImage("c")
    for end, fails in ((1000, False), (999, True)):
        record = ProducerIdsAllocated(node_id=NodeId(1), end=end)
        if fails:
            with pytest.raises(CorruptData):
                image.apply(record, offset=image.offset, epoch=1)
        else:
            image = image.apply(record, offset=image.offset, epoch=1)


def test_there_is_an_end_to_them() -> None:
    record = ProducerIdsAllocated(node_id=NodeId(1), end=2**63 - 2)
    with pytest.raises(InvalidRequest):
        allocate(MetadataImage("c").apply(record, offset=0, epoch=1), 1)
