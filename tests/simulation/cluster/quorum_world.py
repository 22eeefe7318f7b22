"""One seed, one story of a metadata quorum: members, wishes, and whatever befalls them."""

import copy
import errno
import random
import uuid
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from immutables import Map

from streamlog.errors import StreamlogError
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.commands import AllocateProducerIds
from streamlog.metadata.controller import Decision
from streamlog.metadata.controller.clients import allocate_producer_ids
from streamlog.metadata.image import records as facts
from streamlog.metadata.image.image_types import NodeImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.quorum import voter_sets
from streamlog.metadata.quorum.store import MetadataStore
from streamlog.metadata.quorum.voter_sets import add_voter, remove_voter
from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.node import RaftSettings
from streamlog.raft.voters import ReplicaKey, Voter, VoterSet
from tests.simulation.checkers import Violation
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.links import Links
from tests.simulation.cluster.member import CLUSTER_ID, DIRECTORY, Member, QuorumConfig, Wish
from tests.simulation.cluster.quorum_checkers import QuorumCheckers
from tests.simulation.cluster.rpc import Rpc
from tests.simulation.cluster.trouble import Troubles
from tests.simulation.disk import SimDisk
from tests.simulation.events import Events

DISKS_MAX = 3
"""That a machine has had, and that may come back."""
OPERATIONS = (
    "open", "create", "pread", "pwrite", "truncate", "sync", "sync_directory", "rename", "unlink",
    "sizes", "make_directory", "read_small", "write_small",
)  # fmt: skip
CODES = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES)
TROUBLE_S = (10, 10, 20, 40)
"""Many short stories find more than a few long ones."""
CALM_US = 60_000_000
"""After the trouble, all must be well within this."""
VOTERS_ID = uuid.UUID(int=1)


class QuorumWorld:
    """Three to five voters, observers, and someone who wishes for changes all the time."""

    VOTERS: tuple[int, ...] = (1, 2, 3, 3, 3, 3, 4, 5)
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
                fetch_wait_max_ms=timeout_ms // 2,
            ),
            request_timeout_ms=2 * timeout_ms,
            snapshot_after=self.rng.choice((0, 5, 30)),
            segment_bytes=self.rng.choice((1_000, 20_000, 1 << 20)),
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
        self.troubles.kinds += [
            self._resign,
            self._change_voters,
            self._change_voters,
            self._replace_disk,
            self._lose_disk,
            self._return_disk,
            self._fail_any_call,
            self._fail_any_call,
        ]
        self.granted: dict[uuid.UUID, int] = {}
        """Wishes that were answered, and the offset below which they are committed."""
        self.producer_ids: dict[int, int] = {}
        """The first of each block that was given away, and the wish that got it."""
        self._wished = 0
        self._destroyed: set[ReplicaKey] = set()
        """Their disks are gone for good."""

    def run(self) -> None:
        """Raises Violation."""
        for host in self.hosts.values():
            self.troubles.boot(host)
        self.troubles.begin()
        self.events.after(self._until_us - 1, self._mount_what_counts)
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
                member.host.run(partial(self._wish_anew, member))

    def _wish_anew(self, member: Member) -> None:
        member.wish(self._new_wish())

    def _new_wish(self) -> Wish:
        self._wished += 1
        if self.rng.random() < 0.3:
            return self._producers_wish(self._wished)
        mark = uuid.UUID(int=self._wished)
        node_id = NodeId(self.rng.randint(11, 19))
        records = [
            facts.NodeRegistered(
                node_id=node_id, incarnation=mark, directory_id=mark, host="h", port=1
            )
            for _ in range(self.rng.choice((1, 1, 1, 40)))
        ]

        def granted(offset: int, _result: object) -> None:
            if self.checkers.kept.end_offset < offset:
                raise Violation(f"granted at {offset}, and no member has it committed")
            if str(mark).encode() not in self.checkers.kept.batch_below(offset):
                raise Violation(f"{mark} is granted at {offset}, and something else is there")
            self.granted[mark] = offset

        return Wish(lambda image: Decision(tuple(records)), granted, _nothing)

    def _producers_wish(self, number: int) -> Wish:
        def granted(_offset: int, result: dict[str, Any]) -> None:
            first = result["first"]
            if self.producer_ids.setdefault(first, number) != number:
                raise Violation(f"the producer ids from {first} on are given away twice")

        command = AllocateProducerIds(node_id=NodeId(number))
        return Wish(lambda image: allocate_producer_ids(image, command), granted, _nothing)

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
        """One more, or one less; several may ask for it at once."""
        for member in self.members():
            if not member.is_active or member.host.is_stopped:
                continue
            for _ in range(self.rng.choice((1, 1, 2, 3))):
                node_id = self.rng.choice(sorted(self.hosts))
                host = member.host
                host.run(partial(self._wish_voters, member, node_id))

    def _wish_voters(self, member: Member, node_id: NodeId) -> None:
        member.wish(self._voters_wish(member, node_id))

    def _voters_wish(self, member: Member, node_id: NodeId) -> Wish:
        """As AddVoter and RemoveVoter are decided."""

        def decide(image: MetadataImage) -> Decision:
            refusal = member.replica.raft.change_voters_refusal(voters_offset=image.voters_offset)
            if refusal is not None:
                raise StreamlogError(refusal)
            if self._is_destroyed(image.voters):
                raise StreamlogError("a folder is gone for good")
            if node_id in image.voters.ids:
                records = remove_voter(image, node_id)
            else:
                nodes = {it: _node(it) for it in self.hosts}
                records = add_voter(replace(image, nodes=Map(nodes)), node_id, _caught_up(member))
            self.troubles.tell(f"voters become {sorted(records[0].voter_set.ids)}")
            return Decision(records)

        return Wish(decide, _nothing, _nothing)

    def _is_destroyed(self, voters: VoterSet) -> bool:
        """Somebody is known by a disk that is nowhere any more."""
        return bool(voters.replicas & self._destroyed)

    def _replace_disk(self) -> None:
        """Only where the folders of all voters are there, and all of the others are well."""
        members = self.members()
        if len(members) < len(self.hosts):
            return
        host = self.hosts[self.rng.choice(sorted(self.hosts))]
        mounted = {member.replica.key for member in members}
        end = max(member.store.end_offset for member in members)
        for member in members:
            voters = member.replica.image.voters
            if (
                len(voters) < 3
                or not voters.replicas <= mounted
                or member.replica.voters != voters
                or member.replica.image.offset < end
            ):
                return
        self._destroyed |= {it.replica.key for it in members if it.host is host}
        self.troubles.tell(f"node {host.node_id} gets another disk")
        host.kill()
        host.wipe()
        self.troubles.boot(host)

    def _lose_disk(self) -> None:
        """It is not mounted at one boot; what is on it is not gone. When all configured voters have
        empty disks, they are a new cluster: one keeps what it has.
        """
        host = self.hosts[self.rng.choice(sorted(self.hosts))]
        if len(host.absent) < DISKS_MAX and self._others_know(host):
            self.troubles.tell(f"node {host.node_id} starts without its disk")
            host.kill()
            host.mount()
            self.troubles.boot(host)

    def _others_know(self, host: Host) -> bool:
        others = self.config.voters.ids - {host.node_id}
        return any(_told(self.hosts[it].disk).end[1] > 0 for it in others)

    def _return_disk(self) -> None:
        host = self.hosts[self.rng.choice(sorted(self.hosts))]
        if host.absent and self._others_know(host):  # it may be one that was empty
            self.troubles.tell(f"node {host.node_id} has an old disk back")
            host.kill()
            host.mount(self.rng.choice(host.absent))
            self.troubles.boot(host)

    def _fail_any_call(self) -> None:
        host = self.hosts[self.rng.choice(sorted(self.hosts))]
        operation, code = self.rng.choice(OPERATIONS), self.rng.choice(CODES)
        host.disk.fail(operation, code, skip=self.rng.randint(0, 3), times=self.rng.choice((1, 3)))
        self.troubles.tell(
            f"the disk of node {host.node_id} fails: {operation}, {errno.errorcode[code]}"
        )

    def _changed(self, host: Host) -> None:
        """As the controller's duties: a voter with another disk is removed, then added."""
        member = host.process
        if not isinstance(member, Member) or not member.is_active:
            return

        def decide(image: MetadataImage) -> Decision:
            core = member.replica.raft
            if core.change_voters_refusal(voters_offset=image.voters_offset) is not None:
                return Decision()
            nodes = {it: _node(it) for it in self.hosts}
            known = replace(image, nodes=Map(nodes))
            return Decision(
                voter_sets.tended_voters(known, core.replaced_voters(), _caught_up(member))
            )

        if decide(member.replica.newest).records:
            host.after(0, lambda: member.wish(Wish(decide, _nothing, _nothing)))

    def _mount_what_counts(self) -> None:
        """At the end: the disks that vote, by what the most advanced log says; else the most
        advanced one of each node.
        """
        disks = {
            id(disk): _told(disk) for it in self.hosts.values() for disk in (it.disk, *it.absent)
        }
        voters = max(disks.values(), key=lambda it: it.end)[1]
        for host in self.hosts.values():
            best = max(
                (host.disk, *host.absent),
                key=lambda it: (
                    ReplicaKey(host.node_id, disks[id(it)].directory_id) in voters.replicas,
                    disks[id(it)].end,
                ),
            )
            if best is not host.disk:
                self.troubles.tell(f"node {host.node_id} has the disk that counts")
                host.kill()
                host.mount(best)

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


class _Told(NamedTuple):
    """What is on a disk."""

    end: tuple[int, int]
    """The last epoch, and the end of the log."""
    voters: VoterSet
    directory_id: uuid.UUID


def _told(disk: SimDisk) -> _Told:
    disk = copy.deepcopy(disk)  # to open it is to change it
    disk.kill()
    disk.capacity_bytes = None
    nothing = uuid.UUID(int=0)
    try:
        store = MetadataStore(DIRECTORY, CLUSTER_ID, disk=disk, files=FilePool(disk, 4))
        image = store.open()
        for batch in store.batches_from(image.offset):
            image = image.apply_all(batch.records, offset=batch.base_offset, epoch=batch.epoch)
        vote = store.vote
        told = _Told(
            (store.last_epoch, store.end_offset),
            image.voters,
            vote.directory_id if vote else nothing,
        )
        store.close()
    except StreamlogError:
        told = _Told((-1, 0), VoterSet(), nothing)
    return told


def _node(node_id: NodeId) -> NodeImage:
    """As it has registered."""
    return NodeImage(node_id, uuid.UUID(int=node_id), f"n{node_id}", 1, None, None, 0, fenced=False)


def _caught_up(member: Member) -> dict[NodeId, ReplicaKey]:
    replicas = member.replica.raft.replicas(member.host.clock.monotonic_ms)
    return {it.key.node_id: it.key for it in replicas if it.is_caught_up}


def _nothing(*_: object) -> None:
    """Nobody waits for it."""
