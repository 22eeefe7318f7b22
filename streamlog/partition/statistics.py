"""What a partition says about itself."""

from dataclasses import dataclass

from streamlog.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """A partition at one moment."""

    tp: TopicPartition
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segment_count: int
    isr_size: int
    in_flight_bytes: int
    in_flight_batches: int
    failure: str | None
    """Why nothing can be appended; None where all is well."""
