"""Stories of a quorum whose voters change while it is split where that would hurt most."""

from dataclasses import replace
from functools import partial

from streamlog.metadata.controller import Decision
from streamlog.metadata.image.metadata_image import MetadataImage
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.member import Member, Wish
from tests.simulation.cluster.quorum_world import QuorumWorld
from tests.simulation.disk import SimDisk


class VotersChangeAtOnce(QuorumWorld):
    """Two changes of the voters are asked for at once. When one of them is decided, the leader is
    left with few others: those who do not know of the changes elect another leader.
    """

    VOTERS = (2, 3, 3, 4)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.troubles.kinds = [self._change_two]

    def _change_two(self) -> None:
        rng = self.rng
        for member in self.members():
            others = [it for it in sorted(self.hosts) if it != member.host.node_id]
            if not member.is_active or member.host.is_stopped or len(others) < 2:
                continue
            for node_id, splits in zip(
                rng.sample(others, 2), rng.choice(((True, False), (False, True))), strict=True
            ):
                wish = self._voters_wish(member, node_id)
                if splits:
                    wish = self._splitting(wish, member.host)
                delay_us = rng.randint(0, 2_000)
                member.host.after(delay_us, partial(member.wish, wish))

    def _splitting(self, wish: Wish, leader: Host) -> Wish:
        def decide(image: MetadataImage) -> Decision:
            decision = wish.decide(image)
            self._split(leader)
            return decision

        return replace(wish, decide=decide)

    def _split(self, leader: Host) -> None:
        """The leader and a minority of the nodes are left alone."""
        others = [it for it in sorted(self.hosts) if it != leader.node_id]
        kept = {leader.node_id, *self.rng.sample(others, self.rng.randint(0, len(others) // 2))}
        self.troubles.tell(f"{sorted(kept)} are left alone")
        self.links.split(kept, self.hosts.keys() - kept)
        timeout_us = 1_000 * self.config.raft.election_timeout_ms
        self.events.after(self.rng.randint(4, 10) * timeout_us, self.links.heal)


class FoldersReturn(QuorumWorld):
    """One of three voters has lost its folder. As its new one is about to vote, the third voter is
    cut off; then the other two are gone, and the old folder is back.
    """

    VOTERS = (3,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.troubles.kinds = [self._lose_folder]
        self._lost: tuple[Host, SimDisk] | None = None
        """Whose folder, until it is back."""

    def _lose_folder(self) -> None:
        member = next((it for it in self.members() if it.is_active), None)
        if member is None or self._lost is not None:
            return
        others = sorted(member.replica.voters.ids - {member.host.node_id})
        if len(others) != 2 or any(self.hosts[it].absent for it in self.hosts):
            return
        host = self.hosts[self.rng.choice(others)]
        if self._others_know(host):
            self.troubles.tell(f"node {host.node_id} starts without its folder")
            self._lost = host, host.disk
            host.kill()
            host.mount()
            self.troubles.boot(host)
            self.events.after(10_000_000, lambda: self._return_folder(host))

    def _changed(self, host: Host) -> None:
        member, lost = host.process, self._lost
        if isinstance(member, Member) and member.is_active and lost is not None:
            loser = lost[0]
            replaced = {key.node_id for key in member.replica.raft.replaced_voters()}
            others = sorted(member.replica.voters.ids - {host.node_id, loser.node_id})
            if loser.node_id in replaced and len(others) == 1 and not self.troubles.over:
                self._lost = None
                self._cut_off(self.hosts[others[0]], leader=host, loser=loser, folder=lost[1])
        super()._changed(host)

    def _cut_off(self, third: Host, *, leader: Host, loser: Host, folder: SimDisk) -> None:
        self.troubles.tell(f"node {third.node_id} is cut off")
        self.links.isolate(third.node_id, [leader.node_id, loser.node_id])
        timeout_us = 1_000 * self.config.raft.election_timeout_ms

        def change() -> None:
            self.links.heal()
            self.troubles.kill(leader, down_us=8 * timeout_us)
            self._return_folder(loser, folder)

        self.events.after(self.rng.randint(20_000, timeout_us), change)

    def _return_folder(self, host: Host, folder: SimDisk | None = None) -> None:
        """The old one, in place of the new one, which never voted."""
        if folder is None:
            if self._lost is None or self._lost[0] is not host:
                return
            folder = self._lost[1]
            self._lost = None
        self.troubles.tell(f"node {host.node_id} has its old folder back")
        host.kill()
        host.mount(folder)
        host.absent.clear()
        self.troubles.boot(host)
