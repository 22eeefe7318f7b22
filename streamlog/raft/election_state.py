"""A member's epoch, vote, role and leader, and how long these hold. Pure."""

from collections.abc import Callable

from streamlog.errors import BrokenInvariant
from streamlog.model import NodeId
from streamlog.raft.events import Role
from streamlog.raft.settings import RaftSettings
from streamlog.raft.voters import ReplicaKey

LONG_AGO_MS = -(1 << 60)


class ElectionState:
    """``epoch`` and ``voted_for`` are durable before anybody hears of them; the rest is not kept.

    Invariants: the epoch never falls; a vote is given once in an epoch; an epoch has one leader,
    which is not forgotten for another one.
    """

    def __init__(
        self,
        me: ReplicaKey,
        *,
        epoch: int,
        voted_for: ReplicaKey | None,
        settings: RaftSettings,
        random: Callable[[], float],
        now_ms: int = 0,
    ) -> None:
        self.epoch = epoch
        self.voted_for = voted_for
        self.role = Role.OBSERVER
        self.leader: NodeId | None = None
        self.is_voter = False
        self.stands_ms = 0
        """When a voter stands for election, unless it hears something better."""
        self._me = me
        self._timeout_ms_min = settings.timeout_ms_min
        self._spread_ms = settings.spread_ms
        self._settings = settings
        self._detector = settings.detector()
        """Of the leader that this node follows, and of those before: they are as far away."""
        self._moment_ms = settings.moment_ms
        self._random = random
        self._heard_ms = LONG_AGO_MS
        """When the leader itself was last heard of; what others say of it does not count."""
        self._any_leader_ms = now_ms
        """When a leader of any epoch was last heard of, or may have been: before its start a process has heard
        what it does not know."""
        self._gone: NodeId | None = None
        """The leader of this epoch, whose process has gone; what others say of it is outdated."""
        self._gone_until_ms = LONG_AGO_MS

    def begin(self, *, is_voter: bool, is_alone: bool, now_ms: int) -> None:
        """Asking early does no harm: where there is a leader, it is heard of in this way."""
        self.is_voter = is_voter
        self._be_idle()
        if not is_voter:
            self.be_patient(now_ms)
        else:
            quarter_ms = self._timeout_ms_min // 4
            self.stands_ms = now_ms if is_alone else now_ms + self._up_to(quarter_ms)

    def enter(self, epoch: int, now_ms: int) -> None:
        """A newer epoch, of which nothing else is known."""
        if epoch <= self.epoch:
            raise BrokenInvariant(f"epoch {epoch} is not newer than {self.epoch}")
        if self.role is Role.LEADER:
            self._any_leader_ms = now_ms
        self.epoch = epoch
        self.voted_for = None
        self._gone = None
        self._be_idle()
        self.be_patient(now_ms)

    def ask(self) -> None:
        """Would others vote for this one?"""
        self.role = Role.PROSPECTIVE
        self.leader = None

    def stand(self, now_ms: int) -> None:
        """For the next epoch, with a vote of its own."""
        self.enter(self.epoch + 1, now_ms)
        self.role = Role.CANDIDATE
        self.voted_for = self._me

    def lead(self) -> None:
        if self.role is not Role.CANDIDATE:
            raise BrokenInvariant(f"a {self.role.value} cannot become the leader")
        if self.voted_for != self._me:
            raise BrokenInvariant("a leader has voted for itself")
        self.role = Role.LEADER
        self.leader = self._me.node_id

    def resign(self, now_ms: int) -> None:
        """It has voted for itself, and so for no other node in this epoch."""
        if self.role is not Role.LEADER:
            raise BrokenInvariant(f"a {self.role.value} cannot resign")
        self.role = Role.RESIGNED
        self.leader = None
        self._any_leader_ms = now_ms
        self.be_patient(now_ms)

    def vote(self, candidate: ReplicaKey, now_ms: int) -> None:
        """It gets the time that it needs."""
        if self.voted_for not in (None, candidate):
            raise BrokenInvariant(f"epoch {self.epoch}: this node has voted for another candidate")
        if self.leader is not None:
            raise BrokenInvariant(f"epoch {self.epoch} has a leader already")
        self.voted_for = candidate
        self._be_idle()
        self.be_patient(now_ms)

    def may_follow(self, leader: NodeId, *, directly: bool, now_ms: int) -> bool:
        """``directly``: the leader says so itself. This node is none in an epoch that it had
        forgotten, whatever the others think.
        """
        if leader == self._me.node_id or self.leader is not None:
            return False
        return directly or leader != self._gone or now_ms >= self._gone_until_ms

    def follow(self, leader: NodeId, *, directly: bool, now_ms: int) -> None:
        if self.role is Role.LEADER:
            raise BrokenInvariant("a leader follows no node in its epoch")
        if leader == self._me.node_id:
            raise BrokenInvariant("a node does not follow itself")
        self.leader = leader
        self.role = Role.FOLLOWER if self.is_voter else Role.OBSERVER
        self._gone = None
        self._heard_ms = LONG_AGO_MS
        self._detector.interrupted()
        if directly:
            self.hear(now_ms)
        else:
            quarter_ms = self._timeout_ms_min // 4
            self.stands_ms = now_ms + quarter_ms + self._up_to(quarter_ms)

    def hear(self, now_ms: int) -> None:
        """Of the leader, from itself."""
        self._heard_ms = self._any_leader_ms = now_ms
        self._detector.heard(now_ms)
        self.be_patient(now_ms)

    def silence_ms(self, now_ms: int) -> int:
        """For so long this process has certainly not heard from any leader, nor led itself."""
        return 0 if self.role is Role.LEADER else now_ms - self._any_leader_ms

    def stood_still(self, by_ms: int, now_ms: int) -> None:
        """This node, until now: it could not hear of anything. That is no silence of the leader."""
        self.stands_ms += by_ms
        if self._heard_ms != LONG_AGO_MS:
            self._heard_ms = min(self._heard_ms + by_ms, now_ms)
        self._detector.interrupted()

    def hears(self, now_ms: int) -> bool:
        """The leader is there, as far as one can know."""
        if self.role is Role.LEADER:
            return True
        is_recent = now_ms < self._heard_ms + self._detector.timeout_ms
        return self.leader is not None and is_recent

    def would_elect(self, now_ms: int) -> bool:
        """Whether another may have given the leader up: a moment earlier than this one does, for it was heard of by
        each at another time.
        """
        return not self.hears(now_ms + self._spread_ms // 2)

    def lose_leader(self, *, turn: int, now_ms: int) -> None:
        """It leads no more; this voter stands soon, after ``turn`` others."""
        self.leader = None
        self._be_idle()
        if not self.is_voter:  # it may have to lead as well, if no other node can
            self.be_patient(now_ms)
        else:
            turn_ms = 2 * turn * self._moment_ms
            self.stands_ms = now_ms + turn_ms + self._up_to(self._moment_ms)

    def leader_gone(self, now_ms: int) -> None:
        """Its process is not there."""
        self._gone = self.leader
        self._gone_until_ms = now_ms + self._settings.election_timeout_ms
        self.lose_leader(turn=0, now_ms=now_ms)

    def voters_changed(self, *, is_voter: bool, now_ms: int) -> None:
        if is_voter == self.is_voter:
            return
        self.is_voter = is_voter
        if self.role in (Role.LEADER, Role.RESIGNED):
            return
        if self.leader is None:
            self._be_idle()
        else:
            self.role = Role.FOLLOWER if is_voter else Role.OBSERVER
        self.be_patient(now_ms)

    def lost_election(self, now_ms: int) -> None:
        """No candidate wins, or another one does and will announce it."""
        if self.role not in (Role.CANDIDATE, Role.PROSPECTIVE):
            raise BrokenInvariant(f"a {self.role.value} takes no part in an election")
        self._be_idle()
        self.stands_ms = now_ms + 1 + self._up_to(2 * self._moment_ms)

    def make_way(self, now_ms: int) -> None:
        """For another whose turn it seems to be."""
        pause_ms = 2 * self._moment_ms
        self.stands_ms = max(self.stands_ms, now_ms + pause_ms + self._up_to(pause_ms))

    def hurry(self, now_ms: int) -> None:
        """Someone stands who must not win: this log has more."""
        self.stands_ms = min(self.stands_ms, now_ms + self._up_to(self._moment_ms))

    def be_patient(self, now_ms: int) -> None:
        """For as long as a leader may be silent, and a little more, which is no one else's."""
        self.stands_ms = now_ms + self._detector.timeout_ms + self._up_to(self._spread_ms)

    def _up_to(self, limit_ms: int) -> int:
        """Members that waited equally long would stand against each other for ever."""
        return int(limit_ms * self._random())

    def _be_idle(self) -> None:
        self.leader = None
        self.role = Role.UNATTACHED if self.is_voter else Role.OBSERVER
