"""Rows that a plan counted on and that are gone: an error, or a warning where that was asked for.

What is lost is judged by where the log starts and ends, and by whether the stream is still the
same one. Offsets that are missing inside of a log are no loss: compaction and erasure leave such
gaps.
"""

import logging
from typing import Final

from streamlog.arrow.options.read_options import ReadOptions
from streamlog.condition import Condition
from streamlog.errors import CorruptData
from streamlog.model import TopicPartition

logger = logging.getLogger(__name__)

RECORDS_LOST: Final = Condition(
    "SL-0280",
    "records lost",
    "read earlier, or keep records longer (retention)",
    meaning="Retention, a purge or a deletion has removed records between the plan of a read, or the "
    "checkpoint of a streaming query, and the read itself. The read goes on without them, as its "
    "option about data loss says.",
)


class DataLoss(CorruptData):
    """Records that the plan counted on are not there any more."""


def report_loss(name: TopicPartition, first: int, end: int, why: str, options: ReadOptions) -> None:
    """The records ``[first, end)`` of a partition. Raises DataLoss if that was asked for."""
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{name}: offsets [{first}, {end}) were there when the query was planned and are"
            f" not now; {why}; set {options.names.tolerate_loss} to go on without them"
        )
    logger.warning(
        RECORDS_LOST.logged_as(f"records lost: {name}, offsets [{first}, {end}): {why}"),
        extra={
            "stream": name.stream,
            "partition": name.partition,
            "offset": first,
            "end": end,
        },
    )
