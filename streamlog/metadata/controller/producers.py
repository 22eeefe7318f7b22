"""Ids for producers. Pure."""

from typing import Final

from streamlog.errors import InvalidRequest
from streamlog.metadata.commands import AllocateProducerIds
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import ProducerIdsAllocated

BLOCK_SIZE: Final = 1_000
"""Kafka's: a record of the metadata log for each so many producers."""
ID_MAX: Final = 2**63 - 1


def allocate_ids(image: MetadataImage, command: AllocateProducerIds) -> Decision:
    """The next block, from ``first`` up to but without ``end``.

    An answer that is lost costs a block, of which there are enough.
    """
    first = image.producer_ids_end
    end = first + BLOCK_SIZE
    if end > ID_MAX:
        raise InvalidRequest("all producer ids are given away")
    record = ProducerIdsAllocated(node_id=command.node_id, end=end)
    return Decision((record,), {"first": first, "end": end})
