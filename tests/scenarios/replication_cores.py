"""A leader's view of its replicas, and their logs, which a scenario moves by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field

from streamlog.log.leader_epochs import LeaderEpochs
from streamlog.model import NodeId
from streamlog.replication.divergence import cut_offset, divergence, shown_offset
from streamlog.replication.isr import IsrProposal, ReplicaStanding
from streamlog.replication.leader import LeaderProgress
from tests.quorum_log import Entry, MemoryLog

LAG_TIME_MS = 1_000


@dataclass
class _Replica:
    log: MemoryLog
    high_watermark: int = 0
    node_epoch: int = 1
    is_live: bool = True

    @property
    def epochs(self) -> LeaderEpochs:
        return self.log._epochs()


@dataclass
class ReplicationScenario:
    """The commands are the methods that begin with ``do_``."""

    now_ms: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    partition_epoch: int = 0
    progress: LeaderProgress | None = None
    replicas: dict[int, _Replica] = field(default_factory=dict)
    proposal: IsrProposal | None = None
    trace: list[str] = field(default_factory=list)

    def run(self, command: str) -> list[str]:
        name, *arguments = command.split()
        self.trace = []
        do: Callable[..., None] = getattr(self, f"do_{name}")
        do(*arguments)
        return self.trace

    # What there is

    def do_replica(self, node: str, *arguments: str) -> None:
        """``replica 1 log=1,1,2 hw=2``"""
        values = dict(argument.split("=") for argument in arguments)
        epochs = [int(it) for it in values.get("log", "").split(",") if it]
        log = MemoryLog.of(*(Entry(epoch, offset) for offset, epoch in enumerate(epochs)))
        self.replicas[int(node)] = _Replica(log, int(values.get("hw", 0)))

    def do_lead(self, node: str, *arguments: str) -> None:
        """``lead 1 epoch=3 isr=1,2 min_isr=2``"""
        values = dict(argument.split("=") for argument in arguments)
        replica = self.replicas[int(node)]
        self.leader_id, self.leader_epoch = int(node), int(values["epoch"])
        self.partition_epoch += 1
        self.proposal = None
        self.progress = LeaderProgress(
            NodeId(int(node)),
            _nodes(values["isr"]),
            start_offset=replica.high_watermark,
            log_end=replica.log.end_offset,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            min_isr=int(values.get("min_isr", 1)),
            now_ms=self.now_ms,
        )
        self._advance(self.progress.local(replica.log.end_offset, replica.log.durable_end))
        self._tell(f"leads in epoch {self.leader_epoch}, from {self.progress.epoch_start}")

    def do_state(self) -> None:
        for node, replica in sorted(self.replicas.items()):
            role = "leader" if node == self.leader_id else "follower"
            log = " ".join(
                f"{entry.epoch}*" if offset >= replica.log.durable_end else str(entry.epoch)
                for offset, entry in enumerate(replica.log.entries, replica.log.start_offset)
            )
            self.trace.append(
                f"{node}: {role}, high watermark {replica.high_watermark}, log {log or '-'}"
            )
        if self.progress is not None:
            counted = _shown(self.progress.in_sync.maximal)
            self.trace.append(f"in sync {_shown(self.progress.isr)}, counted {counted}")

    # What happens

    def do_time(self, ms: str) -> None:
        self.now_ms += int(ms)

    def do_append(self, count: str = "1", synced: str = "") -> None:
        """To the leader's log; ``append 2 unsynced`` leaves the sync to ``sync``."""
        log = self.replicas[self.leader_id].log
        log.append([Entry(self.leader_epoch, "own") for _ in range(int(count))])
        if not synced:
            log.sync()
        self._advance(self._progress.local(log.end_offset, log.durable_end))

    def do_sync(self) -> None:
        log = self.replicas[self.leader_id].log
        log.sync()
        self._advance(self._progress.local(log.end_offset, log.durable_end))

    def do_fetch(self, node: str) -> None:
        """A follower asks from its end on, and does what the leader answers."""
        leader, replica = self.replicas[self.leader_id], self.replicas[int(node)]
        end, last = replica.log.end_offset, replica.log.last_epoch
        asked = f"{node}: fetch from {end}, epoch {last}"
        parting = divergence(leader.log.epoch_end(last), fetch_offset=end, last_epoch=last)
        if parting is not None:
            own = replica.epochs.end_offset_for(parting.epoch, end)
            cut = cut_offset(parting, own, end)
            replica.log.truncate(cut)
            self.trace.append(
                f"{asked}: diverging {parting.epoch}@{parting.end_offset}, cut to {cut}"
            )
            return
        self.trace.append(asked)
        self._advance(
            self._progress.follower(
                NodeId(int(node)), end, node_epoch=replica.node_epoch, now_ms=self.now_ms
            )
        )
        new = leader.log.entries[end - leader.log.start_offset :]
        replica.log.append(new)
        replica.log.sync()
        if new:
            self.trace.append(f"{node}: append {' '.join(str(entry.epoch) for entry in new)}")
        before = replica.high_watermark
        replica.high_watermark = shown_offset(
            leader.high_watermark, log_end=replica.log.end_offset, before=before
        )
        if replica.high_watermark != before:
            self.trace.append(f"{node}: high watermark {replica.high_watermark}")

    def do_restart(self, node: str) -> None:
        """Another process; the metadata knows it."""
        self.replicas[int(node)].node_epoch += 1

    def do_fence(self, node: str) -> None:
        self.replicas[int(node)].is_live = False

    def do_propose(self) -> None:
        """The leader looks whether the ISR should be another."""
        found = self._progress.isr_proposal(
            self.now_ms, lag_time_ms=LAG_TIME_MS, standings=self._standing
        )
        self.proposal = found
        members = "none"
        if found is not None:
            members = " ".join(f"{node}@{epoch}" for node, epoch in found.members)
        self._tell(f"proposes {members}, counts {_shown(self._progress.in_sync.maximal)}")

    def do_grant(self) -> None:
        """The controller has logged what was proposed."""
        if self.proposal is None:
            raise ValueError("nothing is proposed")
        self.do_isr(",".join(str(node) for node, _ in self.proposal.members))

    def do_isr(self, nodes: str) -> None:
        """The controller has logged these."""
        self.partition_epoch += 1
        self._advance(
            self._progress.set_isr(
                _nodes(nodes), partition_epoch=self.partition_epoch, now_ms=self.now_ms
            )
        )
        self._tell(f"in sync {_shown(self._progress.isr)}")

    def do_refuse(self) -> None:
        if self.proposal is None:
            raise ValueError("nothing is proposed")
        self._advance(self._progress.refused(self.proposal, self.now_ms))
        self._tell(f"counts {_shown(self._progress.in_sync.maximal)}")

    def do_lose(self) -> None:
        """The answer to the proposal does not come."""
        if self.proposal is None:
            raise ValueError("nothing is proposed")
        self._progress.in_sync.unanswered(self.proposal, self.now_ms)

    @property
    def _progress(self) -> LeaderProgress:
        if self.progress is None:
            raise ValueError("no replica leads")
        return self.progress

    def _standing(self, node_id: NodeId) -> ReplicaStanding:
        replica = self.replicas[node_id]
        return ReplicaStanding(replica.node_epoch, replica.is_live)

    def _advance(self, high_watermark: int) -> None:
        leader = self.replicas[self.leader_id]
        if high_watermark != leader.high_watermark:
            leader.high_watermark = high_watermark
            self._tell(f"high watermark {high_watermark}")

    def _tell(self, what: str) -> None:
        self.trace.append(f"{self.leader_id}: {what}")


def _nodes(text: str) -> list[NodeId]:
    return [NodeId(int(it)) for it in text.split(",")]


def _shown(nodes: frozenset[NodeId]) -> str:
    return " ".join(str(node) for node in sorted(nodes))
