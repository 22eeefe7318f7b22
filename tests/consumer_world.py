"""Members of the consumer protocol (KIP-848) over a ``GroupWorld``."""

from typing import Any

from streamlog.coordination.effects import NONE
from streamlog.groups.records import NOTHING, Assigned
from streamlog.groups.requests import HeartbeatAnswer
from streamlog.wire.error_codes import ErrorCode
from tests.group_world import GroupWorld

GONE = frozenset(
    {
        ErrorCode.fenced_member_epoch,
        ErrorCode.unknown_member_id,
        ErrorCode.group_id_not_found,
    }
)
"""A member that is told so has no partitions any more, and joins again."""


class WorldMember:
    """As a client does it: it has no partition that it was not assigned, and gives up what it is told to."""

    def __init__(self, world: GroupWorld, member_id: str, *, group: str = "g", **says: Any) -> None:
        self.world = world
        self.member_id = member_id
        self.group = group
        self.says = says
        self.epoch = 0
        self.owned: Assigned = NOTHING
        self.wanted: Assigned = NOTHING
        self.answer: HeartbeatAnswer | None = None
        self.has_missed_answer = False
        """Then its next request says all, and is answered with all."""

    def beat(self) -> HeartbeatAnswer:
        """One heartbeat, which is answered at once; what it is told to give up, it still has."""
        says = self.says if self.epoch == 0 else {}
        if self.has_missed_answer and self.epoch:
            says = {"rebalance_ms": 60_000, **self.says}
        self.has_missed_answer = False
        if "instance_id" in self.says:
            says = {**says, "instance_id": self.says["instance_id"]}
        token = self.world.consumer_beat(
            self.member_id,
            self.epoch,
            self.owned,
            group=self.group,
            **says,
        )
        answer: HeartbeatAnswer = token.result
        self.take(answer)
        return answer

    def take(self, answer: HeartbeatAnswer) -> None:
        self.answer = answer
        if answer.error in GONE:
            self.epoch, self.owned, self.wanted = 0, NOTHING, NOTHING
        elif answer.error is NONE:
            self.epoch = answer.epoch
            if answer.assigned is not None:
                self.wanted = answer.assigned

    def reconcile(self) -> None:
        """Give up what is not wanted, and take up what is."""
        self.owned = self.wanted

    def step(self) -> HeartbeatAnswer:
        answer = self.beat()
        self.reconcile()
        return answer


def settle(*members: WorldMember, rounds: int = 6) -> None:
    """They go on until each has what it is to have."""
    for _ in range(rounds):
        for it in members:
            it.step()
    for it in members:
        it.beat()


def numbers(assigned: Assigned) -> set[int]:
    return {number for _, number in assigned}
