"""What may befall a quorum, at random: crashes, cuts, bad networks, changes of the voters."""

from functools import partial

from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.replica_tracker import CAUGHT_UP_MS
from streamlog.raft.voters import ReplicaKey, Voter, VoterSet
from tests.quorum_checkers import Violation
from tests.quorum_host import Host
from tests.quorum_log import Payload, voters_of, voters_payload
from tests.quorum_world import Chaos, World

FOLDERS_MAX = 3
"""That a host has had, and that may come back."""
CALM_MS = 30_000
"""After the trouble all must be well within this."""


class Trouble:
    """``run`` makes the life of ``world`` hard, then heals it, and expects it to recover."""

    def __init__(self, world: World, *, changes_voters: bool = True, wipes: bool = True) -> None:
        self.world = world
        self._numbers = 0
        self._no_change_until_ms = 0
        self._kinds = [
            self._crash,
            self._crash,
            self._start,
            self._start,
            self._start,
            self._cut_link,
            self._cut_off,
            self._heal_links,
            self._heal_links,
            self._network,
            self._snapshot,
            self._snapshot,
            self._resign,
            *([self._change_voters] * 2 if changes_voters else []),
            *([self._wipe, self._lose_folder, self._return_folder] if wipes else []),
        ]

    def run(self, for_ms: int) -> None:
        world, rng = self.world, self.world.rng
        end_ms = world.now_ms + for_ms
        while world.now_ms < end_ms:
            world.run(rng.choice((1, 5, 20, 100, 300, 300, 1_000, 2_000)))
            self._wish()
            if rng.random() < 0.5:
                rng.choice(self._kinds)()
        world.tell("heals")
        self._mount_what_counts()
        world.heal()
        if not world.run_until(self._is_well, CALM_MS):
            raise Violation("all is not well:\n" + "\n".join(_state(it) for it in world.up()))

    def _is_well(self) -> bool:
        self.world.run(1)
        return self.world.is_well()

    def _wish(self) -> None:
        """Whoever believes that it leads writes; the controller also does what it does unasked."""
        rng = self.world.rng
        for host in self.world.up():
            if host.raft.role is raft.Role.LEADER:
                for _ in range(rng.choice((0, 1, 1, 1, 4))):
                    self._numbers += 1
                    host.propose(self._numbers)
                self._tend_voters(host)

    def _tend_voters(self, host: Host) -> None:
        """As the controller does unasked."""
        if host.raft.change_voters_refusal() is None and (
            host.returning or host.raft.replaced_voters()
        ):
            host.propose(lambda: self.tended(host))

    def tended(self, host: Host) -> Payload:
        """A voter whose folder is gone is removed, and added when that is committed."""
        world, core = self.world, host.raft
        if core.change_voters_refusal() is not None:
            return "no change"
        voters, returning = dict(host.voters.by_id), host.returning
        caught_up = {
            it.key.node_id: it.key for it in core.replicas(world.now_ms) if it.is_caught_up
        }
        for node_id in sorted(returning & caught_up.keys()):
            voters[node_id] = _voter(caught_up[node_id])
            world.tell(f"{host.node_id} adds {node_id} again")
            return voters_payload(VoterSet.of(voters.values()), returning - {node_id})
        for key in core.replaced_voters():
            if len(voters) > 1:
                world.tell(f"{host.node_id} removes {key.node_id}, which is to return")
                del voters[key.node_id]
                return voters_payload(VoterSet.of(voters.values()), returning | {key.node_id})
        return "no change"

    # Machines

    def _any(self) -> Host:
        return self.world.rng.choice(list(self.world.hosts.values()))

    def _crash(self) -> None:
        for _ in range(self.world.rng.choice((1, 1, 1, 2, 5))):
            self._any().crash()

    def _start(self) -> None:
        for host in self.world.hosts.values():
            if not host.is_up and self.world.rng.random() < 0.7:
                host.start()

    def _snapshot(self) -> None:
        rng = self.world.rng
        for host in self.world.up():
            if rng.random() < 0.5:
                host.disk.log.take_snapshot(host.raft.high_watermark, keep_log=rng.random() < 0.7)

    def _wipe(self) -> None:
        """One disk of three or more, while all others have all that is committed and know it: more
        is more than a quorum can bear.
        """
        world, victim = self.world, self._any()
        committed = world.checkers.committed_entries
        if self._is_replacing or any(
            host.disk.log.prefix(host.disk.log.durable_end) != committed
            or host.raft.high_watermark != len(committed)
            for host in world.hosts.values()
        ):
            return
        voters = victim.voters
        mine = voters.by_id.get(victim.node_id)
        if len(voters) - (mine is not None) < voters.majority:
            return
        if len(world.configured) == 1:
            return  # alone, and with nothing, it would begin a quorum of its own
        if all(it.directory_id is not None for it in voters.by_id.values()):
            self._no_change_until_ms = world.now_ms + 2 * CAUGHT_UP_MS
            victim.crash()
            victim.wipe()
            victim.start()

    def _lose_folder(self) -> None:
        """A volume is not mounted at one boot, as often as it may be: what is on it is not gone.

        But for this: when all configured voters have empty folders, they are a new cluster.
        """
        host = self._any()
        if len(host.absent) < FOLDERS_MAX and self._others_know(host):
            host.crash()
            host.mount()
            host.start()

    def _others_know(self, host: Host) -> bool:
        others = self.world.configured.ids - {host.node_id}
        return any(self.world.hosts[it].disk.log.durable_end for it in others)

    def _return_folder(self) -> None:
        host = self._any()
        if host.absent and self._others_know(host):  # it may be one that was empty
            host.crash()
            host.mount(self.world.rng.choice(host.absent))
            host.start()

    def _mount_what_counts(self) -> None:
        """The folders that vote, by what the most advanced log says; else, since that need not be
        committed, the most advanced one of the node.
        """
        hosts = self.world.hosts.values()
        disks = [disk for host in hosts for disk in (host.disk, *host.absent)]
        newest = max(disks, key=lambda it: (it.log.last_epoch, it.log.end_offset))
        found = map(voters_of, (it.payload for it in newest.log.prefix(newest.log.end_offset)))
        voters = [it for it in found if it is not None]
        for host in hosts:
            voter = voters[-1].by_id.get(host.node_id) if voters else None
            best = max(
                (host.disk, *host.absent),
                key=lambda it: (
                    voter is not None and voter.directory_id == it.directory_id,
                    it.log.last_epoch,
                    it.log.end_offset,
                ),
            )
            if best is not host.disk:
                host.crash()
                host.mount(best)

    @property
    def _is_replacing(self) -> bool:
        """A voter is known by a folder that is no more."""
        hosts = self.world.hosts
        return any(
            not voter.is_replica(hosts[voter.node_id].key)
            for host in hosts.values()
            for voter in host.voters.by_id.values()
        )

    @property
    def _is_destroyed(self) -> bool:
        """A voter is known by a folder that is nowhere any more."""
        folders = {
            disk.directory_id
            for host in self.world.hosts.values()
            for disk in (host.disk, *host.absent)
        }
        return any(
            not {it.directory_id for it in host.voters.by_id.values()} <= folders | {None}
            for host in self.world.hosts.values()
        )

    # Links

    def _cut_link(self) -> None:
        self.world.cut.add((self._any().node_id, self._any().node_id))

    def _cut_off(self) -> None:
        """A host, or more, both ways or one way."""
        rng = self.world.rng
        lonely = {self._any().node_id for _ in range(rng.choice((1, 1, 2)))}
        others = set(self.world.hosts) - lonely
        kind = rng.choice(("both", "both", "from", "to"))
        for one in lonely:
            for other in others:
                if kind != "to":
                    self.world.cut.add((one, other))
                if kind != "from":
                    self.world.cut.add((other, one))
        self.world.tell(f"cut off: {sorted(lonely)}, {kind}")

    def _heal_links(self) -> None:
        self.world.tell("the links are whole")
        self.world.cut.clear()

    def _network(self) -> None:
        rng = self.world.rng
        self.world.chaos = Chaos(
            loss=rng.choice((0, 0, 0, 0.05, 0.3)),
            duplicates=rng.choice((0, 0, 0.1)),
            delay_ms=rng.choice((2, 2, 20, 200)),
            slow=rng.choice((0, 0, 0.1)),
        )

    # Members

    def _resign(self) -> None:
        for host in self.world.up():
            if host.raft.role is raft.Role.LEADER:
                successor = self.world.rng.choice([None, *sorted(self.world.hosts)])
                self.world.tell(f"{host.node_id} resigns for {successor}")
                host.resign(successor)

    def _change_voters(self) -> None:
        """Several may ask for it at once, of several that believe that they lead."""
        for host in self.world.up():
            if host.raft.role is raft.Role.LEADER:
                for _ in range(self.world.rng.choice((1, 1, 2, 3))):
                    host.propose(partial(self._changed_voters, host))

    def _changed_voters(self, host: Host) -> Payload:
        """One more or one less, decided when its turn to be written has come."""
        world = self.world
        if host.raft.change_voters_refusal() is not None or self._is_destroyed:
            return "no change"
        if world.now_ms < self._no_change_until_ms:
            return "no change"  # the wiped one still seems to be caught up
        node_id: NodeId = world.rng.choice(sorted(world.hosts))
        voters = dict(host.voters.by_id)
        if node_id in voters:
            if len(voters) == 1:
                return "no change"
            del voters[node_id]
        else:
            known = [
                it
                for it in host.raft.replicas(world.now_ms)
                if it.key.node_id == node_id and it.is_caught_up
            ]
            if not known:
                return "no change"
            voters[node_id] = _voter(known[-1].key)
        world.tell(f"{host.node_id} makes the voters {sorted(voters)}")
        return voters_payload(VoterSet.of(voters.values()), host.returning - {node_id})


def _voter(key: ReplicaKey) -> Voter:
    return Voter(key.node_id, f"n{key.node_id}", 1, key.directory_id)


def _state(host: Host) -> str:
    core, log = host.raft, host.disk.log
    return (
        f"{host.node_id}: {core.role.value} in {core.epoch}, {core.leader} leads; log"
        f" {log.start_offset} to {log.end_offset}, committed {core.high_watermark}, voters"
        f" {sorted(core.voters.ids)}, deadline in {core.deadline_ms - host.world.now_ms}"
    )
