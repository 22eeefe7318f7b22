"""The beginning of a metadata log. Pure."""

from typing import Final
from uuid import UUID

from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import MetadataLogBegun

PRODUCER_IDS_PER_MS: Final = 1_024
"""More than any cluster gives away for long: each block of 1,000 is a record of its own. The ids
stay below 2**53, which JSON readers keep exact, until the year 2248."""
LEADER_EPOCHS_SINCE_MS: Final = 1_735_689_600_000
"""2025-01-01. One leader epoch a second is more than any partition uses for long; 32 bits last
until 2093."""


def begin_log(image: MetadataImage, *, new_id: UUID, now_ms: int) -> MetadataLogBegun:
    """The record that names the log of ``image``, which has no name yet.

    Another log may have gone on from the same backup, or from the same entries, and its clients may
    live on. What it gave away cannot be known here, but the time tells: ids and epochs grow slower
    than the clock by which each log begins. A clock that has gone back does no harm where ``image``
    is far above what it was made of, as a restored one is.

    Producers may outlive a cluster that nothing is left of; hence a new one, too, begins at a
    producer id that none of another cluster has. Its streams have new ids, by which clients tell
    leader epochs apart.
    """
    first_leader_epoch = 0
    if image.offset:
        first_leader_epoch = max(0, now_ms - LEADER_EPOCHS_SINCE_MS) // 1_000
    return MetadataLogBegun(
        log_id=new_id,
        begun_ms=now_ms,
        first_producer_id=max(image.producer_ids_end, now_ms * PRODUCER_IDS_PER_MS),
        first_leader_epoch=max(image.leader_epochs_end, first_leader_epoch),
    )
