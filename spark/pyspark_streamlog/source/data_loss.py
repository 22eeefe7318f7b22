"""Rows that a plan counted on and that are gone: an error, or a warning where that was asked for.

What is lost is judged by where the log starts and ends, and by whether the stream is still the
same one. Offsets that are missing inside of a log are no loss: compaction and erasure leave such
gaps.
"""

import logging

from streamlog.errors import CorruptData
from streamlog.model import TopicPartition

logger = logging.getLogger(__name__)


class DataLoss(CorruptData):
    """Records that the plan counted on are not there any more."""


def report_loss(name: TopicPartition, first: int, end: int, why: str, *, fail: bool) -> None:
    """The records ``[first, end)`` of a partition. Raises DataLoss if ``fail``."""
    if fail:
        raise DataLoss(
            f"{name}: offsets [{first}, {end}) were there when the query was planned and are"
            f" not now; {why}; set failOnDataLoss=false to go on without them"
        )
    logger.warning(
        "records lost: %s",
        why,
        extra={"stream": name.stream, "partition": name.partition, "offset": first, "end": end},
    )
