"""One seed, one story of a metadata quorum: members, wishes, and whatever befalls them."""

import random
import uuid
from collections.abc import Iterable

from streamlog.errors import StreamlogError
from streamlog.metadata import records as facts
from streamlog.metadata.controller import Decision
from streamlog.metadata.image import Image
from streamlog.metadata.voting import with_directories
from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.quorum import RaftSettings
from streamlog.raft.voters import Voter, VoterSet
from tests.simulation.checkers import Violation
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.links import Links
from tests.simulation.cluster.member import Member, QuorumConfig, Wish
from tests.simulation.cluster.quorum_checkers import QuorumCheckers
from tests.simulation.cluster.rpc import Rpc
from tests.simulation.cluster.trouble import Troubles
from tests.simulation.events import Events

TROUBLE_S = (10, 10, 20, 40)
"""Many short stories find more than a few long ones."""
CALM_US = 60_000_000
"""After the trouble, all must be well within this."""
VOTERS_ID = uuid.UUID(int=1)


class QuorumWorld:
    """Three to five voters, observers, and someone who wishes for changes all the time."""

    VOTERS = (1, 2, 3, 3, 3, 3, 4, 5)
    """One of these is drawn."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._until_us = self.rng.choice(TROUBLE_S) * 1_000_000
        self.events = Events()
        self.links = Links(self.events, self.rng)
        self.checkers = QuorumCheckers()
        voters = self.rng.choice(self.VOTERS)
        count = voters + self.rng.choice((0, 0, 1))
        ids = [NodeId(number) for number in range(1, count + 1)]
        self.hosts = {node_id: Host(node_id, self.events, self.rng) for node_id in ids}
        self.rpc = Rpc(self.links, self.hosts)
        timeout_ms = self.rng.choice((150, 400, 1_000))
        self.config = QuorumConfig(
            voters=VoterSet.of(Voter(node_id, f"n{node_id}", 1) for node_id in ids[:voters]),
            voters_id=VOTERS_ID,
            raft=RaftSettings(
                election_timeout_ms=timeout_ms,
                request_timeout_ms=2 * timeout_ms,
                fetch_wait_ms=timeout_ms // 2,
            ),
            request_timeout_ms=2 * timeout_ms,
            snapshot_after=self.rng.choice((0, 5, 30)),
        )
        self.troubles = Troubles(
            self.events,
            self.rng,
            self.hosts,
            self.links,
            until_us=self._until_us,
            start=self._start,
        )
        self.checkers.on_moment = self._strike_at
        self._spite = self.rng.choice((0.0, 0.02, 0.1, 0.4))
        """How often a member is struck just when it would hurt."""
        self.troubles.kinds += [self._resign, self._change_voters, self._replace_disk]
        self.granted: dict[uuid.UUID, int] = {}
        """Wishes that were answered, and the offset below which they are committed."""
        self._wished = 0

    def run(self) -> None:
        """Raises Violation."""
        for host in self.hosts.values():
            self.troubles.boot(host)
        self.troubles.begin()
        self._wish_soon()
        while not (self.troubles.over and self._is_well()):
            if self.events.now_us > self._until_us + CALM_US:
                raise Violation(f"all is not well: {self._state()}")
            self.events.step()
        self._look()

    def _start(self, host: Host) -> None:
        member = Member(
            host,
            self.rpc,
            self.config,
            self.checkers,
            changed=lambda: self._changed(host),
            failed=lambda why: self.troubles.fail(host, why),
        )
        host.start(member)

    def members(self) -> list[Member]:
        return [host.process for host in self.hosts.values() if isinstance(host.process, Member)]

    @property
    def story(self) -> list[str]:
        return self.troubles.story

    @property
    def events_run(self) -> int:
        return self.events.count

    # Wishes

    def _wish_soon(self) -> None:
        self.events.after(self.rng.randint(0, 300_000), self._wish)

    def _wish(self) -> None:
        self._wish_soon()
        for member in self.members():
            if member.is_active and not member.host.is_stopped:
                member.host.run(lambda member=member: member.wish(self._new_wish()))

    def _new_wish(self) -> Wish:
        self._wished += 1
        mark = uuid.UUID(int=self._wished)
        node_id = NodeId(self.rng.randint(1, 9))
        records = [
            facts.NodeRegistered(
                node_id=node_id, incarnation=mark, directory_id=mark, host="h", port=1
            )
            for _ in range(self.rng.choice((1, 1, 1, 40)))
        ]

        def granted(offset: int, _result: object) -> None:
            if self.checkers.kept.end_offset < offset:
                raise Violation(f"granted at {offset}, and no member has it committed")
            self.granted[mark] = offset

        return Wish(lambda image: Decision(tuple(records)), granted, _nothing)

    # Trouble of its own

    def _strike_at(self, member: Member) -> None:
        """Before or after others have heard of what it has just done."""
        if not self.troubles.over and self.rng.random() < self._spite:
            host = member.host
            self.events.after(self.rng.randint(0, 5_000), lambda: self.troubles.strike(host))

    def _resign(self) -> None:
        for member in self.members():
            if member.is_active:
                others = sorted(member.replica.voters.ids - {member.host.node_id})
                successor = self.rng.choice([None, *others])
                self.troubles.tell(f"node {member.host.node_id} resigns for {successor}")
                member.tell(raft.Resign(successor))

    def _change_voters(self) -> None:
        """One more, or one less."""
        for member in self.members():
            if not member.is_active or member.host.is_stopped:
                continue
            node_id = self.rng.choice(sorted(self.hosts))
            host = member.host
            host.run(lambda m=member, n=node_id: m.wish(self._voters_wish(m, n)))

    def _voters_wish(self, member: Member, node_id: NodeId) -> Wish:
        def decide(image: Image) -> Decision:
            core, now_ms = member.replica.raft, member.host.clock.monotonic_ms
            refusal = core.change_voters_refusal(now_ms)
            if refusal is not None:
                raise StreamlogError(refusal)
            voters = dict(member.replica.voters.by_id)
            if not self._votes_as_recorded(voters.values()):
                raise StreamlogError("a voter has another disk, or is not there")
            if node_id in voters:
                if len(voters) == 1:
                    raise StreamlogError("the last voter stays")
                del voters[node_id]
            else:
                voters[node_id] = _voter_of(member, node_id, now_ms)
            self.troubles.tell(f"voters become {sorted(voters)}")
            return Decision((facts.VotersChanged.of(VoterSet.of(voters.values())),))

        return Wish(decide, _nothing, _nothing)

    def _replace_disk(self) -> None:
        """Only where the folders of all voters are known, and all of the others are well."""
        members = self.members()
        if len(members) < len(self.hosts):
            return
        host = self.hosts[self.rng.choice(sorted(self.hosts))]
        for member in members:
            voters = member.replica.image.voters
            by_id = voters.by_id if voters else {}
            if (
                len(by_id) < 3
                or member.replica.voters != voters
                or not self._votes_as_recorded(by_id.values())
            ):
                return
        self.troubles.tell(f"node {host.node_id} gets another disk")
        host.kill()
        host.wipe()
        self.troubles.boot(host)

    def _votes_as_recorded(self, voters: Iterable[Voter]) -> bool:
        """None of them has got another disk since."""
        directories = {
            member.host.node_id: member.replica.key.directory_id for member in self.members()
        }
        return all(voter.directory_id == directories.get(voter.node_id) for voter in voters)

    def _changed(self, host: Host) -> None:
        """As the controller's duties: voters are recorded with their folders."""
        member = host.process
        if not isinstance(member, Member) or not member.is_active:
            return
        core, voters = member.replica.raft, member.replica.voters
        keys = [*core.unrecorded_directories(), *core.replaced_voters()]
        wanted = with_directories(voters, keys)
        if wanted != voters and core.change_voters_refusal(host.clock.monotonic_ms) is None:
            decision = Decision((facts.VotersChanged.of(wanted),))
            host.after(0, lambda: member.wish(Wish(lambda _: decision, _nothing, _nothing)))

    # The end

    def _is_well(self) -> bool:
        members = self.members()
        ends = {member.replica.image.offset for member in members}
        return (
            len(members) == len(self.hosts)
            and sum(member.is_active for member in members) == 1
            and len(ends) == 1
            and self.events.now_us > self._until_us + 1_000_000
        )

    def _look(self) -> None:
        """Each has all that was granted."""
        for member in self.members():
            image = member.replica.image
            self.checkers.images.look(member.host.node_id, image)
            for mark, offset in self.granted.items():
                if offset > image.offset:
                    raise Violation(f"{mark}, granted at {offset}, is lost")

    def _state(self) -> list[str]:
        return [
            f"node {m.host.node_id}: {m.replica.raft.role.value} of epoch {m.replica.raft.epoch},"
            f" leader {m.leader}, log {m.store.start_offset} to {m.store.end_offset},"
            f" committed {m.replica.image.offset}"
            for m in self.members()
        ]


def _voter_of(member: Member, node_id: NodeId, now_ms: int) -> Voter:
    """A replica that keeps up, as the leader sees it. Raises StreamlogError."""
    for replica in member.replica.raft.replicas(now_ms):
        if replica.key.node_id == node_id and replica.is_caught_up:
            return Voter(node_id, f"n{node_id}", 1, replica.key.directory_id)
    raise StreamlogError("does not keep up")


def _nothing(*_: object) -> None:
    """Nobody waits for it."""
