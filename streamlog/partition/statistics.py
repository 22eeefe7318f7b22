"""What a partition says about itself."""

from dataclasses import dataclass

from streamlog.model import NodeId, TopicPartition
from streamlog.partition.state import PartitionState


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """A partition at one moment."""

    tp: TopicPartition
    leader: NodeId
    """NO_LEADER where there is none."""
    leader_epoch: int
    is_leader: bool
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segment_count: int
    replica_count: int
    isr_size: int
    min_isr: int
    follower_lag: int
    """Records that the follower furthest behind lacks; 0 where this node does not lead."""
    in_flight_bytes: int
    in_flight_batches: int
    is_auto_paused: bool
    """Nobody has written to it for so long that its files are closed."""
    is_damaged: bool
    """Some records cannot be read here."""
    failure: str | None
    """Why nothing can be appended; None where all is well."""


def statistics_of(state: PartitionState) -> PartitionStatistics:
    """As it is now."""
    log = state.log
    return PartitionStatistics(
        tp=state.tp,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        is_leader=state.is_leader,
        log_start_offset=log.log_start_offset,
        high_watermark=state.high_watermark,
        log_end_offset=log.log_end_offset,
        size_bytes=log.size_bytes,
        segment_count=log.segment_count,
        replica_count=len(state.replicas),
        isr_size=len(state.isr),
        min_isr=state.min_isr,
        follower_lag=max(state.replica_lags().values(), default=0),
        in_flight_bytes=state.in_flight_bytes,
        in_flight_batches=len(state.pending),
        is_auto_paused=log.is_resting,
        is_damaged=log.damaged_from is not None,
        failure=None if state.failure is None else str(state.failure),
    )
