"""Producers of one transactional id, some of them zombies, a coordinator that crashes, and partitions that keep what
each transaction has written, and how its marker has ended it.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streamlog.config import TransactionsSection
from streamlog.coordination.effects import NONE
from streamlog.transactions.records import transaction_record
from streamlog.transactions.requests import NO_PRODUCER_EPOCH, GivenProducer, SendMarkers
from streamlog.transactions.transaction import EPOCH_MAX, PartitionId, ProducerEpoch
from tests.group_world import Token
from tests.transaction_world import ID, TransactionWorld, add_request

PARTITIONS: Final = 3
KINDS: Final = (
    "start", "again", "write", "write", "write", "end", "end", "repeat", "commit", "commit", "commit", "mark",
    "mark", "mark", "lose", "late", "crash", "wait", "append",
)  # fmt: skip
SETTINGS: Final = TransactionsSection(id_expiration_ms=86_400_000)

Step = tuple[str, int, int]


class Written(NamedTuple):
    """A batch in a partition."""

    producer: ProducerEpoch
    number: int


class ModelPartition:
    """A partition as KIP-890 wants it: what was sent late is refused, and so is a marker that comes again."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.ends: dict[int, int] = defaultdict(int)
        """Markers, by producer."""
        self.coordinator_epoch = 0
        self.open: list[Written] = []
        self.outcomes: dict[Written, bool] = {}

    def append(self, batch: Written, ends_before: int) -> bool:
        """``ends_before``: markers of the producer when the coordinator was asked."""
        producer_id, epoch = batch.producer
        if epoch < self.epochs.get(producer_id, -1) or self.ends[producer_id] != ends_before:
            return False
        self.epochs[producer_id] = epoch
        self.open.append(batch)
        return True

    def mark(self, sent: SendMarkers, coordinator_epoch: int) -> None:
        producer_id, epoch = sent.producer
        known = self.epochs.get(producer_id, -1)
        if coordinator_epoch < self.coordinator_epoch or epoch < known:
            return
        self.coordinator_epoch = coordinator_epoch
        if sent.version >= 2 and epoch == known:  # it is there already
            return
        self.epochs[producer_id] = epoch
        self.ends[producer_id] += 1
        for batch in [it for it in self.open if it.producer.producer_id == producer_id]:
            self.open.remove(batch)
            self.outcomes[batch] = sent.commit


@dataclass
class Client:
    """A producer; ``order`` of those that were initialised, the newest has the highest."""

    version: int
    producer: ProducerEpoch = NO_PRODUCER_EPOCH
    order: int = 0
    batches: list[tuple[PartitionId, Written]] = field(default_factory=list)
    """Of its open transaction."""
    ended: tuple[ProducerEpoch, bool] | None = None
    """Its last EndTxn, and what it wanted."""
    is_ending: bool = False
    """That was not answered yet. Before version 2 the client does nothing else then but ask again."""

    @property
    def may_go_on(self) -> bool:
        return self.version >= 2 or not self.is_ending


@dataclass
class Asked:
    """A request whose answer has not come."""

    what: str
    client: Client
    token: Token
    producer: ProducerEpoch
    was_zombie: bool
    number: int = 0
    commit: bool = False
    ends_before: int = 0


class TransactionStory:
    """``step`` by step, then ``finish``. Raises AssertionError where a promise is broken."""

    def __init__(self, epoch: int = 0) -> None:
        """``epoch``: of the first producer; near the last one there is, ids are used up."""
        self.world = TransactionWorld(SETTINGS, commits=False)
        self.partitions = {("t", number): ModelPartition() for number in range(PARTITIONS)}
        self.clients: list[Client] = []
        self.asked: list[Asked] = []
        self.promised: dict[Written, bool] = {}
        """How their transactions were said to end."""
        self.places: dict[Written, PartitionId] = {}
        self.sent: list[tuple[SendMarkers, int]] = []
        """All there ever were, each with the coordinator's epoch."""
        self.marked: set[tuple[int, PartitionId]] = set()
        self.delayed: list[tuple[PartitionId, Written, int, Client]] = []
        self.newest = 0
        self.numbers = 0
        self.first_epoch = epoch

    def step(self, what: str, first: int, second: int) -> None:
        world = self.world
        match what:
            case "start":
                self._start(first)
            case "again" if self.clients:
                self._again(self._client(first))
            case "write" if self.clients and self._client(first).may_go_on:
                self._write(self._client(first), second % PARTITIONS)
            case "end" if self.clients and self._client(first).may_go_on:
                self._end(self._client(first), commit=bool(second % 2))
            case "repeat" if self.clients:
                client = self._client(first)
                if client.ended is not None:
                    self._ask_end(client, *client.ended)
            case "commit":
                world.commit_log(1 + first % 3)
            case "mark" | "lose" if world.markers:
                self._mark(first, second, lost=what == "lose")
            case "late" if self.sent:
                sent, epoch = self.sent[first % len(self.sent)]
                if sent.version >= 2:
                    self.partitions["t", second % PARTITIONS].mark(sent, epoch)
            case "crash":
                world.crash(first % 3)
                self.asked.clear()
            case "wait":
                world.wait((1, 1_000, 70_000)[first % 3])
            case "append" if self.delayed:
                self._append(*self.delayed.pop(first % len(self.delayed)))
        self._answered()
        self.check()

    def finish(self) -> None:
        """Nothing fails any more, and no client goes on."""
        world = self.world
        world.commits = True
        world.commit_log()
        self._answered()
        for _ in range(3):
            self._mark_all()
            world.wait(70_000)
        self._mark_all()
        self.check()
        for name, kept in world.coordinator.transactions():
            assert not kept.state.is_prepared, name
            assert kept.state.name != "ONGOING", name
        for batch, place in self.places.items():
            partition = self.partitions[place]
            assert batch not in partition.open, f"{batch} hangs"
            if batch in self.promised:
                assert partition.outcomes[batch] == self.promised[batch], batch

    def check(self) -> None:
        """What holds at any time."""
        told = dict(self.world.coordinator.transactions())
        logged = dict(self.world.replayed().built())
        # That all partitions have their markers may be known before the log says so.
        followed = {
            name: it.completed(told[name].update_ms) if it.state.is_prepared else it
            for name, it in logged.items()
            if name in told
        }
        assert told.keys() == logged.keys(), "not what the log says"
        assert all(it in (logged[name], followed[name]) for name, it in told.items()), (
            "not what the log says"
        )
        held = {it.producer for partition in self.partitions.values() for it in partition.open}
        assert len(held) <= 1, f"two open transactions: {held}"
        for kept in told.values():
            assert kept.producer.epoch < EPOCH_MAX, "no client may have this epoch"
        for batch, place in self.places.items():
            outcome = self.partitions[place].outcomes.get(batch)
            if outcome is not None and batch in self.promised:
                assert outcome == self.promised[batch], f"{batch} ended otherwise than was said"

    # What clients do

    def _client(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    def _is_zombie(self, client: Client) -> bool:
        return client.order < self.newest

    def _start(self, number: int) -> None:
        client = Client(version=2 if number % 3 else 0)
        token = self.world.init()
        self.asked.append(Asked("init", client, token, NO_PRODUCER_EPOCH, was_zombie=False))

    def _again(self, client: Client) -> None:
        token = self.world.init(client.producer)
        zombie = self._is_zombie(client)
        self.asked.append(Asked("again", client, token, client.producer, zombie))

    def _write(self, client: Client, number: int) -> None:
        partition = self.partitions["t", number]
        ends = partition.ends[client.producer.producer_id]
        token = self.world.add(client.producer, number, version=client.version)
        zombie = self._is_zombie(client)
        self.asked.append(
            Asked("add", client, token, client.producer, zombie, number, ends_before=ends)
        )

    def _end(self, client: Client, *, commit: bool) -> None:
        client.ended = client.producer, commit
        client.is_ending = True
        self._ask_end(client, client.producer, commit)

    def _ask_end(self, client: Client, producer: ProducerEpoch, commit: bool) -> None:
        self.delayed = [it for it in self.delayed if it[3] is not client or client.version >= 2]
        token = self.world.end(producer, commit=commit, version=client.version)
        zombie = self._is_zombie(client)
        self.asked.append(Asked("end", client, token, producer, zombie, commit=commit))

    def _append(self, place: PartitionId, batch: Written, ends: int, client: Client) -> None:
        if client.version < 2:
            verified = self.world.coordinator.verify(add_request(batch.producer, place[1]))
            if verified[place] is not NONE:
                return
            ends = self.partitions[place].ends[batch.producer.producer_id]
        if self.partitions[place].append(batch, ends):
            self.places[batch] = place
            client.batches.append((place, batch))

    def _answered(self) -> None:
        answered = [it for it in self.asked if it.token.is_answered]
        self.asked = [it for it in self.asked if not it.token.is_answered]
        for it in answered:
            if self.world.error(it.token) is NONE:
                assert not it.was_zombie, f"{it.what} of a zombie, {it.producer}"
                self._done(it)

    def _done(self, asked: Asked) -> None:
        client = asked.client
        match asked.what:
            case "init":
                self._initialised(client, asked.token.result)
                client.order = self.newest = self.newest + 1
                self.clients.append(client)
            case "again":
                self._initialised(client, asked.token.result)
            case "add":
                self.numbers += 1
                batch = Written(asked.producer, self.numbers)
                place = ("t", asked.number)
                self.delayed.append((place, batch, asked.ends_before, client))
                if self.numbers % 3:
                    self._append(*self.delayed.pop())
            case "end":
                given: GivenProducer = asked.token.result
                client.is_ending = False
                for _, batch in client.batches:
                    if batch.producer == asked.producer:
                        self.promised.setdefault(batch, asked.commit)
                client.batches = [it for it in client.batches if it[1].producer != asked.producer]
                if client.producer == asked.producer:
                    client.producer = given.producer

    def _initialised(self, client: Client, given: GivenProducer) -> None:
        client.producer = given.producer
        client.batches.clear()
        client.ended, client.is_ending = None, False
        if self.first_epoch and given.producer.epoch == 0 and self.newest == 0:
            kept = self.world.kept._replace(producer_epoch=self.first_epoch)
            self.world.coordinator._entries[ID].kept = kept
            self.world.log.append(transaction_record(ID, kept))
            client.producer = kept.producer

    # Markers

    def _mark(self, first: int, second: int, *, lost: bool) -> None:
        """A marker comes to a partition; ``lost``: the coordinator does not hear of it."""
        sent = self.world.markers[first % len(self.world.markers)]
        places = sorted(sent.partitions)
        self._deliver(sent, places[second % len(places)], lost=lost)

    def _deliver(self, sent: SendMarkers, place: PartitionId, *, lost: bool = False) -> None:
        world = self.world
        self.sent.append((sent, world.coordinator_epoch))
        self.partitions[place].mark(sent, world.coordinator_epoch)
        if lost:
            return
        self.marked.add((id(sent), place))
        if all((id(sent), it) in self.marked for it in sent.partitions):
            world.markers = [it for it in world.markers if it is not sent]
        world.marked(sent, place)

    def _mark_all(self) -> None:
        while self.world.markers:
            sent = self.world.markers[0]
            for place in sorted(sent.partitions):
                self._deliver(sent, place)
            self._answered()
