"""Members of a metadata quorum whose messages, clock and disks a scenario moves by hand."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.messages import (
    Answer,
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    Fault,
    FetchAnswer,
    RaftFetchRequest,
    Request,
    VoteAnswer,
    VoteRequest,
)
from streamlog.raft.node import RaftNode, RaftSettings
from streamlog.raft.voters import ReplicaKey, Voter, VoterSet
from tests.quorum_log import Entry, MemoryLog, decode, encode, voters_of, voters_payload

SETTINGS: Final = RaftSettings(election_timeout_ms=1_000)
VOTERS_ID: Final = uuid.UUID(int=99)
ROUNDS_MAX: Final = 40
"""Of messages by one command: members that never stop to send are a mistake."""


@dataclass(frozen=True)
class _Message:
    sender: int
    receiver: int
    request: Request
    answer: Answer | None = None

    @property
    def link(self) -> str:
        return f"{self.sender}>{self.receiver}"


@dataclass(frozen=True, eq=False)
class _Token:
    sender: int
    request: Request


@dataclass
class _Member:
    id: int
    log: MemoryLog
    epoch: int
    voted_for: ReplicaKey | None
    high_watermark: int
    random: float
    directory: int
    acquaintances: tuple[int, ...]
    node: RaftNode | None = None
    holds_syncs: bool = False
    installs: raft.InstallSnapshot | None = None
    voters_offset: int = -1

    @property
    def key(self) -> ReplicaKey:
        return _key(self.id, self.directory)

    @property
    def core(self) -> RaftNode:
        if self.node is None:
            raise ValueError(f"node {self.id} is down")
        return self.node


@dataclass
class RaftScenario:
    """The commands are the methods that begin with ``do_``; a node's arguments are ``name=value``."""

    now_ms: int = 0
    configured: VoterSet = field(default_factory=VoterSet)
    members: dict[int, _Member] = field(default_factory=dict)
    messages: list[_Message] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)

    def run(self, command: str) -> list[str]:
        name, *arguments = command.split()
        self.trace = []
        do: Callable[..., None] = getattr(self, f"do_{name}")
        do(*arguments)
        return self.trace

    # What there is

    def do_voters(self, *ids: str) -> None:
        """``voters 1 2 3``, with recorded folders; ``voters configured 1 2``, without."""
        recorded = ids[0] != "configured"
        self.configured = _voters(ids if recorded else ids[1:], recorded=recorded)

    def do_node(self, node: str, *arguments: str) -> None:
        """``node 1 log=1,1,2 epoch=2 voted=3 hw=1 random=0.2 directory=11 knows=2,3``"""
        values = dict(argument.split("=") for argument in arguments)
        epochs = [int(it) for it in values.get("log", "").split(",") if it]
        log = MemoryLog.of(*(Entry(epoch, offset) for offset, epoch in enumerate(epochs)))
        voted = values.get("voted")
        member = self.members[int(node)] = _Member(
            int(node),
            log,
            max(int(values.get("epoch", 0)), log.last_epoch),
            _key(int(voted)) if voted else None,
            int(values.get("hw", 0)),
            float(values.get("random", 0.5)),
            int(values.get("directory", node)),
            tuple(int(it) for it in values.get("knows", "").split(",") if it),
        )
        self._start(member)

    def do_state(self, *nodes: str) -> None:
        for member in self._chosen(nodes):
            log = " ".join(
                f"{entry.epoch}*" if offset >= member.log.durable_end else str(entry.epoch)
                for offset, entry in enumerate(member.log.entries, member.log.start_offset)
            )
            start = f"from {member.log.start_offset}: " if member.log.start_offset else ""
            if member.node is None:
                self.trace.append(f"{member.id}: down; log {start}{log or '-'}")
                continue
            core = member.node
            active = ", active" if core.is_active else ""
            voted = member.voted_for.node_id if member.voted_for else "-"
            self.trace.append(
                f"{member.id}: {core.role.value}{active}, epoch {core.epoch}, leader {core.leader or '-'},"
                f" voted {voted}, high watermark {core.high_watermark}, log {start}{log or '-'}"
            )

    # Time

    def do_time(self, ms: str) -> None:
        """Passes, and no member looks at the clock."""
        self.now_ms += int(ms)

    def do_tick(self, *nodes: str) -> None:
        for member in self._chosen(nodes):
            self._step(member, raft.Tick(), "tick")

    def do_wait(self, node: str) -> None:
        """Until this node's deadline."""
        member = self.members[int(node)]
        waited_ms = max(0, member.core.deadline_ms - self.now_ms)
        self.now_ms += waited_ms
        self._step(member, raft.Tick(), f"after {waited_ms} ms")

    # Messages

    def do_deliver(self, *links: str) -> None:
        """All, until there are none, and none is due to look at the clock; of some links what is on its way now."""
        if links:
            self._deliver_all([it for it in self.messages if it.link in links])
            return
        for _ in range(ROUNDS_MAX):
            self._deliver_all([*self.messages])
            for member in self._chosen(()):
                if member.node is not None and member.node.deadline_ms <= self.now_ms:
                    self._step(member, raft.Tick(), "tick")
            if not self.messages:
                return
        raise ValueError("there is no end of messages")

    def do_lose(self, *links: str) -> None:
        """The sender of the request is told that there is no answer."""
        for message in [it for it in self.messages if it.link in links]:
            self.messages.remove(message)
            self._fail(message)

    def do_flight(self) -> None:
        """What is on its way."""
        self.trace += [f"{it.link} {_shown(it.answer or it.request)}" for it in self.messages]

    def do_abandon(self, link: str) -> None:
        """Fetches of the link that wait for news: their sender waits no more."""
        for member, token in self._waiting(link):
            self._step(member, raft.Abandoned(token), f"{token.sender} waits no more")

    def do_fail(self, link: str) -> None:
        """The same fetches: their sender is told that there is no answer."""
        for member, token in self._waiting(link):
            self._fail(_Message(token.sender, member.id, token.request))

    def _waiting(self, link: str) -> list[tuple[_Member, _Token]]:
        sender, receiver = map(int, link.split(">"))
        member = self.members[receiver]
        state = member.core._leader_state
        if state is None:
            raise ValueError(f"node {receiver} does not lead, so nothing waits there")
        tokens = [fetch.token for fetch in state._waiting._fetches.values()]
        return [
            (member, token)
            for token in tokens
            if isinstance(token, _Token) and token.sender == sender
        ]

    def do_gone(self, node: str, *observers: str) -> None:
        """``gone 1 2 3``: nodes 2 and 3 find the port of node 1 closed."""
        for member in self._chosen(observers):
            self._step(member, raft.PeerGone(NodeId(int(node))), f"{node} is gone")

    def do_request(self, link: str, kind: str, *arguments: str) -> None:
        """One that no member here has sent: ``request 9>1 vote epoch=7 last=3 end=2 pre=1``."""
        sender, receiver = map(int, link.split(">"))
        values = {name: int(value) for name, value in (it.split("=") for it in arguments)}
        key = _key(sender, values.get("directory"))
        epoch = values.get("epoch", 0)
        last, end = values.get("last", -1), values.get("end", 0)
        voters_id = uuid.UUID(int=values.get("voters", VOTERS_ID.int))
        requests: dict[str, Request] = {
            "vote": VoteRequest(epoch, key, last, end, bool(values.get("pre")), voters_id),
            "begin": BeginEpochRequest(epoch, NodeId(sender)),
            "end": EndEpochRequest(epoch, NodeId(sender), (NodeId(9),)),
            "fetch": RaftFetchRequest(epoch, key, end, last, values.get("wait", 0)),
        }
        self._deliver(_Message(sender, receiver, requests[kind]))

    # Logs

    def do_append(self, node: str, count: str = "1") -> None:
        """A leader's shell appends records, and syncs them unless its disk is held."""
        member = self.members[int(node)]
        if member.core.role is not raft.Role.LEADER:
            raise ValueError(f"node {node} does not lead")
        self._append(member, [Entry(member.core.epoch, "own") for _ in range(int(count))])

    def do_hold(self, node: str) -> None:
        """Its disk syncs nothing until ``sync``."""
        self.members[int(node)].holds_syncs = True

    def do_sync(self, node: str) -> None:
        member = self.members[int(node)]
        member.holds_syncs = False
        self._sync(member)

    def do_snapshot(self, node: str, end: str, keep: str = "") -> None:
        """Of all below ``end``; the log begins there, unless it is to be kept."""
        self.members[int(node)].log.take_snapshot(int(end), keep_log=bool(keep))

    def do_install(self, node: str, fails: str = "") -> None:
        """What it was told to install is there now, or could not be had."""
        member = self.members[int(node)]
        if member.installs is None:
            raise ValueError(f"node {node} installs no snapshot")
        wanted, member.installs = member.installs, None
        if fails:
            self._step(member, raft.SnapshotFailed(), "no snapshot")
            return
        source = self.members[wanted.leader].log
        found = next(it for it in source.snapshots if it.id == wanted.snapshot)
        member.log.install(found)
        self._step(member, raft.SnapshotInstalled(wanted.snapshot), "snapshot installed")

    # Members

    def do_crash(self, *nodes: str) -> None:
        """Without what was not synced. Requests to it fail; what it has sent arrives."""
        for member in self._chosen(nodes):
            member.node = None
            member.installs = None
            member.holds_syncs = False
            member.log.crash(member.log.durable_end)

    def do_start(self, *nodes: str) -> None:
        for member in self._chosen(nodes):
            member.high_watermark = 0 if member.log.snapshot is None else member.log.start_offset
            self._start(member)

    def do_resign(self, node: str, to: str = "", successor: str = "") -> None:
        event = raft.Resign(NodeId(int(successor)) if successor else None)
        self._step(self.members[int(node)], event, f"resign {to} {successor}".strip())

    def do_change(self, node: str, *ids: str) -> None:
        """``change 1 1 2 3 4``: leader 1 writes that these vote; ``4/44`` is node 4 with folder 44."""
        member = self.members[int(node)]
        voters = _voters(ids, recorded=True)
        try:
            member.core.check_voters_change(voters)
        except Exception as error:
            self.trace.append(f"{node}: refused: {error}")
            return
        self._append(member, [Entry(member.core.epoch, voters_payload(voters))])

    def do_replicas(self, node: str) -> None:
        """What a leader knows of them."""
        core = self.members[int(node)].core
        for it in core.replicas(self.now_ms):
            caught_up = ", caught up" if it.is_caught_up else ""
            self.trace.append(
                f"{node}: {_shown_key(it.key)} has {it.end_offset}, fetched {it.last_fetch_ms} ms ago,"
                f" had all {it.caught_up_ms} ms ago{caught_up}"
            )
        replaced = " ".join(_shown_key(it) for it in core.replaced_voters())
        self.trace.append(
            f"{node}: unconfirmed for {core.unconfirmed_ms(self.now_ms)} ms, replaced {replaced or '-'}"
        )

    # How effects are carried out

    def _chosen(self, nodes: tuple[str, ...]) -> list[_Member]:
        return [self.members[int(node)] for node in nodes or sorted(self.members)]

    def _start(self, member: _Member) -> None:
        voters, member.voters_offset = self._voters_in(member)
        member.node = RaftNode(
            member.key,
            member.log,
            epoch=member.epoch,
            voted_for=member.voted_for,
            voters=voters,
            voters_offset=member.voters_offset,
            voters_id=VOTERS_ID,
            high_watermark=member.high_watermark,
            settings=SETTINGS,
            random=lambda: member.random,
            now_ms=self.now_ms,
            acquaintances=[NodeId(it) for it in member.acquaintances],
        )
        due_ms = member.node.deadline_ms - self.now_ms
        self.trace.append(f"{member.id}: {member.node.role.value}, due in {due_ms} ms")

    def _voters_in(self, member: _Member) -> tuple[VoterSet, int]:
        """The newest in its log, and where; those of the configuration at -1."""
        entries = member.log.prefix(member.log.end_offset)
        for offset in reversed(range(len(entries))):
            voters = voters_of(entries[offset].payload)
            if voters is not None:
                return voters, offset
        return self.configured, -1

    def _step(self, member: _Member, event: raft.Event, shown: str) -> None:
        effects = member.core.step(event, self.now_ms)
        due_ms = member.core.deadline_ms - self.now_ms
        self.trace.append(f"{member.id}: {shown}")
        later: list[Callable[[], None]] = []
        for effect in effects:
            self.trace.append(f"  {_shown_effect(effect)}")
            self._carry_out(member, effect, later)
        self.trace.append(f"  due in {due_ms} ms")
        for call in later:
            call()

    def _carry_out(
        self, member: _Member, effect: raft.Effect, later: list[Callable[[], None]]
    ) -> None:
        match effect:
            case raft.SaveVote(epoch, voted_for):
                member.epoch, member.voted_for = epoch, voted_for
            case raft.Send(peer, request):
                self.messages.append(_Message(member.id, peer, request))
            case raft.Reply(_Token(sender, request), answer):
                if isinstance(answer, FetchAnswer) and isinstance(request, RaftFetchRequest):
                    answer = _with_records(member.log, request, answer)
                self.messages.append(_Message(member.id, sender, request, answer))
            case raft.Append(records):
                later.append(lambda: self._append(member, decode(records)))
            case raft.Truncate(end_offset):
                member.log.truncate(end_offset)
                later.append(lambda: self._check_voters(member))
            case raft.InstallSnapshot():
                member.installs = effect

    def _append(self, member: _Member, entries: list[Entry]) -> None:
        is_own = member.core.role is raft.Role.LEADER
        member.log.append(entries)
        self._check_voters(member)
        if is_own:
            end = member.log.end_offset
            self._step(member, raft.Appended(end), f"appended up to {end}")
        if not member.holds_syncs:
            self._sync(member)

    def _sync(self, member: _Member) -> None:
        member.log.sync()
        end = member.log.end_offset
        self._step(member, raft.Synced(end), f"synced up to {end}")

    def _check_voters(self, member: _Member) -> None:
        voters, offset = self._voters_in(member)
        if offset != member.voters_offset:
            member.voters_offset = offset
            shown = " ".join(_shown_key(it) for it in sorted(voters.replicas))
            self._step(member, raft.VotersCommitted(voters, offset), f"voters at {offset}: {shown}")

    def _deliver_all(self, messages: list[_Message]) -> None:
        for message in messages:
            self.messages.remove(message)
            self._deliver(message)

    def _deliver(self, message: _Message) -> None:
        member = self.members.get(message.receiver)
        if member is None or member.node is None:
            self._fail(message)
            return
        what = message.answer or message.request
        shown = f"from {message.sender} {_shown(what)}"
        if message.answer is None:
            token = _Token(message.sender, message.request)
            self._step(member, raft.Received(token, message.request), shown)
        else:
            peer = NodeId(message.sender)
            self._step(member, raft.Answered(peer, message.request, message.answer), shown)

    def _fail(self, message: _Message) -> None:
        """Of whose request this is, or whose answer."""
        asker, asked = message.sender, message.receiver
        if message.answer is not None:
            asker, asked = asked, asker
        member = self.members.get(asker)
        if member is not None and member.node is not None:
            event = raft.Failed(NodeId(asked), message.request)
            self._step(member, event, f"no answer of {asked} to {_shown(message.request)}")


def _key(node_id: int, directory: int | None = None) -> ReplicaKey:
    return ReplicaKey(NodeId(node_id), uuid.UUID(int=directory or node_id))


def _voters(ids: tuple[str, ...], *, recorded: bool) -> VoterSet:
    keys = [_key(*map(int, text.split("/"))) for text in ids]
    return VoterSet.of(
        Voter(it.node_id, f"n{it.node_id}", 1, it.directory_id if recorded else None) for it in keys
    )


def _with_records(log: MemoryLog, request: RaftFetchRequest, answer: FetchAnswer) -> FetchAnswer:
    if answer.end_offset <= request.offset:
        return answer
    first = request.offset - log.start_offset
    return replace(
        answer, records=encode(log.entries[first : answer.end_offset - log.start_offset])
    )


def _shown_key(key: ReplicaKey) -> str:
    number = key.directory_id.int
    return str(key.node_id) if number == key.node_id else f"{key.node_id}/{number}"


def _shown(message: Request | Answer) -> str:
    match message:
        case VoteRequest(epoch, candidate, last_epoch, end_offset, pre_vote):
            kind = "PreVote" if pre_vote else "Vote"
            return (
                f"{kind}(epoch {epoch}, of {_shown_key(candidate)}, log {last_epoch}@{end_offset})"
            )
        case BeginEpochRequest(epoch, leader):
            return f"BeginEpoch(epoch {epoch}, leader {leader})"
        case EndEpochRequest(epoch, leader, successors):
            names = " ".join(map(str, successors))
            return f"EndEpoch(epoch {epoch}, leader {leader}, successors {names or '-'})"
        case RaftFetchRequest(epoch, replica, offset, last_epoch, wait_ms):
            return (
                f"Fetch(epoch {epoch}, of {_shown_key(replica)}, log {last_epoch}@{offset},"
                f" wait {wait_ms} ms)"
            )
        case VoteAnswer(epoch, leader, granted, voter, fault):
            verdict = f"{'granted' if granted else 'refused'} by {_shown_key(voter)}"
            return f"{verdict}(epoch {epoch}, leader {leader or '-'}{_shown_fault(fault)})"
        case EpochAnswer(epoch, leader, fault):
            return f"noted(epoch {epoch}, leader {leader or '-'}{_shown_fault(fault)})"
        case FetchAnswer():
            return _shown_fetch_answer(message)
    raise TypeError(message)


def _shown_fetch_answer(answer: FetchAnswer) -> str:
    parts = [f"epoch {answer.epoch}", f"leader {answer.leader or '-'}"]
    if answer.fault is not Fault.NONE:
        parts.append(answer.fault.value)
    if answer.diverging is not None:
        parts.append(f"diverging {answer.diverging.epoch}@{answer.diverging.end_offset}")
    if answer.snapshot is not None:
        parts.append(f"snapshot {answer.snapshot.epoch}@{answer.snapshot.end_offset}")
    if answer.high_watermark >= 0:
        parts.append(f"high watermark {answer.high_watermark}")
    if answer.records:
        epochs = " ".join(str(entry.epoch) for entry in decode(answer.records))
        parts.append(f"records {epochs}")
    if answer.end_offset >= 0:
        parts.append(f"up to {answer.end_offset}")
    return f"fetched({', '.join(parts)})"


def _shown_fault(fault: Fault) -> str:
    return "" if fault is Fault.NONE else f", {fault.value}"


def _shown_effect(effect: raft.Effect) -> str:
    match effect:
        case raft.SaveVote(epoch, voted_for):
            return f"save epoch {epoch}, vote {_shown_key(voted_for) if voted_for else '-'}"
        case raft.Send(peer, request):
            return f"to {peer} {_shown(request)}"
        case raft.Reply(_Token(sender), answer):
            return f"answer {sender} {_shown(answer)}"
        case raft.Append(records):
            return f"append {' '.join(str(entry.epoch) for entry in decode(records))}"
        case raft.Truncate(end_offset):
            return f"truncate to {end_offset}"
        case raft.InstallSnapshot(leader, snapshot):
            return f"install snapshot {snapshot.epoch}@{snapshot.end_offset} of {leader}"
        case raft.Committed(high_watermark):
            return f"commit up to {high_watermark}"
        case raft.RoleChanged(role, epoch, leader):
            return f"role {role.value}, epoch {epoch}, leader {leader or '-'}"
        case raft.WentBack(replica, known_end, end_offset):
            return f"report: {_shown_key(replica)} went back from {known_end} to {end_offset}"
    raise TypeError(effect)
