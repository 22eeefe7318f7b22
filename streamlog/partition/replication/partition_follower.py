"""A partition as a follower's: what it fetches, appends, shows and cuts. No asyncio, no clock."""

from collections.abc import Callable
from typing import NamedTuple

from streamlog.errors import BrokenInvariant, CorruptData, StorageFailed
from streamlog.model import NO_EPOCH, NO_LEADER, EpochEnd
from streamlog.partition.state import NOTHING, PartitionState, Step
from streamlog.replication.divergence import cut_offset, shown_offset


class FetchPosition(NamedTuple):
    """What a follower asks its leader for; all below ``offset`` is here, and kept."""

    offset: int
    last_epoch: int
    """Of the batch before ``offset``; NO_EPOCH where there is none."""
    leader_epoch: int
    partition_epoch: int = NO_EPOCH
    """Of the metadata by which it asks: a leader that knows of a later one, by which this replica
    left the ISR, does not have it join again by this request."""


class Truncation(NamedTuple):
    """The log is to end at ``offset``."""

    offset: int
    whole: bool = False
    """It is to begin there, too, with nothing in it."""
    damaged: bool = False
    """What is there is damaged; it is kept aside."""


class PartitionFollower:
    """The follower's side of a partition's state; does nothing while this node leads."""

    def __init__(self, state: PartitionState) -> None:
        self._state = state
        self.is_damaged = state.log.damaged_from is not None
        """Something in the log cannot be read, so that it must not be counted as being here."""
        self.is_short = False
        """The log has lost its end, of which others may have been told that it is here."""
        self._released: FetchPosition | None = None
        """Where the damage begins, as its leader knows it, which does not count what comes after."""

    def position(self) -> FetchPosition | None:
        """What to fetch next; None where no leader is followed, or what is here is not kept yet.

        Nor where the disk is full: who could not store what comes must not pass for in sync.
        """
        state = self._state
        if not self.follows(state.leader_epoch) or not state.has_room:
            return None
        if self.is_short:
            return None
        if self.is_damaged:
            return self._damaged_position()
        self._released = None
        end = state.log.log_end_offset
        if state.kept_end < end:
            return None
        last_epoch = state.log.epochs.latest
        return FetchPosition(end, last_epoch, state.leader_epoch, state.partition_epoch)

    def _damaged_position(self) -> FetchPosition | None:
        """What tells the leader that only what comes before the damage is here; None once it knows,
        and while this replica is in sync.
        """
        state, log = self._state, self._state.log
        offset = log.damaged_from
        if offset is None or state.node_id in state.isr or state.kept_end < offset:
            return None
        if self._is_released():
            return None
        is_start = offset <= log.log_start_offset
        last_epoch = NO_EPOCH if is_start else log.epochs.epoch_at(offset - 1)
        return FetchPosition(offset, last_epoch, state.leader_epoch, state.partition_epoch)

    def _is_released(self) -> bool:
        released, damaged_from = self._released, self._state.log.damaged_from
        return (
            released is not None
            and damaged_from is not None
            and released.offset <= damaged_from
            and released.leader_epoch == self._state.leader_epoch
        )

    def release(self, asked: FetchPosition) -> None:
        """The leader has answered ``asked`` without an error: it counts no more than that of this
        replica, which is not in the ISR, nor in one that the leader has proposed.
        """
        if self.follows(asked.leader_epoch):
            self._released = asked

    def follows(self, leader_epoch: int) -> bool:
        """Another node, in this epoch; and the log may be touched."""
        state = self._state
        return (
            state.leader_epoch == leader_epoch
            and state.leader not in (NO_LEADER, state.node_id)
            and state.failure is None
            and not state.cutting
        )

    def heard(self) -> bool:
        """Of another leader or ISR; whether a lost end has ceased to matter by that: others count
        without this replica, until it has fetched that end, or there are no others.
        """
        state = self._state
        settled = self.is_short and (state.node_id not in state.isr or len(state.isr) == 1)
        self.is_short &= not settled
        return settled

    def fits(self, asked: FetchPosition) -> bool:
        """Whether an answer to ``asked`` still does: same epoch, and the log ends as it did."""
        log = self._state.log
        end = log.log_end_offset, log.epochs.latest
        return self.follows(asked.leader_epoch) and (asked.offset, asked.last_epoch) == end

    def append(self, records: memoryview) -> int:
        """Write as many whole batches as are good for one go; how many bytes that were. 0: they are
        of a later epoch than the leader's that is followed.

        The leader that was asked cannot have such batches. It was deposed after it had looked where
        the records lie in its file, has cut its log and fetched from the next leader, and has sent
        what stands at that place now. Appended here they would hide that what is before them may
        not be the next leader's: histories are compared by the epoch of the last batch (Kafka's
        KAFKA-18723).

        Raises CorruptBatch if they are damaged or do not follow, StorageFull (nothing was kept),
        StorageFailed, after which ``PartitionState.disk_failed`` is to follow.
        """
        state = self._state
        if state.is_leader or state.cutting:
            raise BrokenInvariant(
                "only a follower appends what it fetched, and not during a truncation"
            )
        return state.write_fetched(records, epoch_max=state.leader_epoch)

    def advance(self, leader_high_watermark: int) -> Step:
        """The leader says with each answer what is committed."""
        state, before = self._state, self._state.high_watermark
        state.high_watermark = shown_offset(
            leader_high_watermark, log_end=state.log.log_end_offset, before=before
        )
        return Step(high_watermark_moved=True) if state.high_watermark != before else NOTHING

    def log_start(self, leader_log_start: int) -> int:
        """And what is gone: where this log is to begin."""
        state = self._state
        return max(state.log.log_start_offset, min(leader_log_start, state.high_watermark))

    def diverged(self, diverging: EpochEnd) -> Truncation:
        """Where to cut. Raises CorruptData if that would take what this replica, which is in sync,
        knows to be committed: no leader may ask for it.
        """
        state = self._state
        if diverging.epoch == NO_EPOCH or diverging.end_offset < 0:
            raise CorruptData(f"{state.tp}: the leader knows no epoch to go back to")
        end = state.log.log_end_offset
        own = state.log.epochs.end_offset_for(diverging.epoch, end)
        return self._checked(Truncation(cut_offset(diverging, own, end)))

    def out_of_range(self, leader_log_start: int) -> Truncation:
        """The leader has nothing that fits: begin again where it begins. Raises CorruptData."""
        state = self._state
        if leader_log_start < 0:
            raise CorruptData(f"{state.tp}: the leader does not say where its log starts")
        return self._checked(Truncation(leader_log_start, whole=True))

    def _checked(self, cut: Truncation) -> Truncation:
        state = self._state
        if cut.offset < state.high_watermark and state.node_id in state.isr:
            raise CorruptData(
                f"{state.tp}: cutting at {cut.offset} would lose what is committed up to"
                f" {state.high_watermark}"
            )
        return cut

    def repair(self) -> Truncation | None:
        """The cut that takes the damage away, for the leader has what comes after it; None while
        this replica is in sync: others are to lead, and to count without it, first. None also until
        the leader has answered that it does not count what is damaged. It may have proposed this
        replica by that, and the controller may have added it already, before this node knows.
        """
        state, damaged_from = self._state, self._state.log.damaged_from
        if damaged_from is None or not self.follows(state.leader_epoch):
            return None
        if state.node_id in state.isr or not self._is_released():
            return None
        return Truncation(damaged_from, damaged=True)

    def begin_cut(self, cut: Truncation) -> Callable[[], None]:
        """What a worker thread is to run, which raises StorageFailed; ``finish_cut`` follows it.

        No sync may run meanwhile, and none begins.
        """
        state = self._state
        may_cut = not state.is_leader or (state.is_behind_store and cut.whole)
        if not may_cut or state.syncing is not None or state.cutting:
            raise BrokenInvariant(
                "only a follower truncates, or a leader that is behind the object store; and"
                " neither during a sync nor twice at once"
            )
        state.cutting = True
        log, offset = state.log, cut.offset
        if cut.whole:
            return lambda: log.truncate_fully_to(offset)
        if cut.damaged:
            return log.cut_damage
        return lambda: log.truncate_to(offset)

    def finish_cut(self, error: StorageFailed | None = None) -> tuple[Step, int]:
        """The cut is done, or has failed; and how many committed records it has cost."""
        state = self._state
        if not state.cutting:
            raise BrokenInvariant("no truncation runs")
        step = state.finish_cut(error)
        self._released = None
        if error is not None:
            return step, 0
        before, log = state.high_watermark, state.log
        self.is_damaged = log.damaged_from is not None
        state.high_watermark = max(min(before, log.log_end_offset), log.log_start_offset)
        return step, max(0, before - state.high_watermark)
