"""A transaction coordinator over a log in memory, and the partitions that it sends markers to."""

from itertools import count
from typing import Any

from streamlog.config import TransactionsSection
from streamlog.coordination.effects import NONE, KeptRecord, Now, SendReply, Write
from streamlog.transactions.coordinator import TransactionCoordinator
from streamlog.transactions.replay import TransactionReplay
from streamlog.transactions.requests import (
    NO_PRODUCER_EPOCH,
    AddRequest,
    Effect,
    EndRequest,
    GivenProducer,
    InitRequest,
    SendMarkers,
    TakeProducerId,
)
from streamlog.transactions.transaction import (
    VERSION_2,
    PartitionId,
    ProducerEpoch,
    Transaction,
)
from streamlog.wire.error_codes import ErrorCode
from tests.group_world import Token

WALL_MS = 1_700_000_000_000
ID = "transfers"


class TransactionWorld:
    """One partition of ``__transaction_state``, its coordinator, and the time."""

    def __init__(
        self, settings: TransactionsSection | None = None, *, commits: bool = True
    ) -> None:
        """``commits``: what is written is committed at once."""
        self.settings = settings or TransactionsSection()
        self.commits = commits
        self.ms = 0
        self.coordinator_epoch = 1
        self.log: list[KeptRecord] = []
        """What is committed."""
        self.writing: list[Write] = []
        """What is appended, and waits."""
        self.refuse: ErrorCode | None = None
        """What becomes of appends, if they fail at once."""
        self.no_producer_id: ErrorCode | None = None
        self.markers: list[SendMarkers] = []
        """That the coordinator wants to be sent."""
        self.ids = count(100)
        self.coordinator = TransactionCoordinator(self.settings)

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_MS + self.ms)

    def carry_out(self, effects: list[Effect]) -> None:
        todo = list(effects)
        while todo:
            effect = todo.pop(0)
            if isinstance(effect, SendReply):
                assert isinstance(effect.token, Token)
                assert not effect.token.results, f"{effect.token} is answered twice"
                effect.token.results.append(effect.result)
            elif isinstance(effect, TakeProducerId):
                found: int | ErrorCode = (
                    next(self.ids) if self.no_producer_id is None else self.no_producer_id
                )
                todo += effect.then(found, self.now)
            elif isinstance(effect, SendMarkers):
                self.markers.append(effect)
            elif self.refuse is not None:
                todo += effect.then(self.refuse, self.now)
            else:
                self.writing.append(effect)
                if self.commits:
                    self.commit_log()

    def commit_log(self, at_most: int | None = None) -> None:
        """What waits is in the log; the oldest ``at_most``."""
        waiting, self.writing = self.writing[:at_most], self.writing[len(self.writing[:at_most]) :]
        for write in waiting:
            self.log += write.records
            self.carry_out(write.then(NONE, self.now))

    def crash(self, kept: int = 0) -> None:
        """Another node coordinates, from the log, which has the first ``kept`` of what waits."""
        for write in self.writing[:kept]:
            self.log += write.records
        self.writing.clear()
        self.markers.clear()
        self.coordinator_epoch += 1
        self.coordinator = TransactionCoordinator(self.settings, self.replayed().built())
        self.carry_out(self.coordinator.begin(self.now))

    def replayed(self) -> TransactionReplay:
        replay = TransactionReplay()
        for key, value in self.log:
            replay.take(key, value)
        return replay

    def wait(self, ms: int) -> None:
        """Time goes by, with all that is due meanwhile."""
        end = self.ms + ms
        while (next_ms := self.coordinator.next_ms) is not None and next_ms <= end:
            self.ms = max(self.ms, next_ms)
            self.carry_out(self.coordinator.tick(self.now))
        self.ms = end

    def mark(self) -> None:
        """Every partition has the markers that were sent."""
        while self.markers:
            sent = self.markers.pop(0)
            for partition in sorted(sent.partitions):
                self.marked(sent, partition)

    def marked(self, sent: SendMarkers, partition: PartitionId) -> None:
        self.carry_out(
            self.coordinator.marked(sent.transactional_id, sent.producer, partition, self.now)
        )

    @property
    def kept(self) -> Transaction:
        found = self.coordinator.find(ID)
        assert found is not None
        return found

    # What producers do

    def init(
        self, known: ProducerEpoch = NO_PRODUCER_EPOCH, *, timeout_ms: int = 60_000, name: str = ID
    ) -> Token:
        token = Token(f"init {known}")
        request = InitRequest(name, timeout_ms, known)
        self.carry_out(self.coordinator.init_producer(request, token, self.now))
        return token

    def initialised(self, known: ProducerEpoch = NO_PRODUCER_EPOCH) -> ProducerEpoch:
        given: GivenProducer = self.init(known).result
        assert given.error is NONE
        return given.producer

    def add(self, producer: ProducerEpoch, *numbers: int, version: int = VERSION_2) -> Token:
        token = Token(f"add {producer}")
        request = add_request(producer, *numbers, version=version)
        self.carry_out(self.coordinator.add_partitions(request, token, self.now))
        return token

    def end(self, producer: ProducerEpoch, *, commit: bool, version: int = VERSION_2) -> Token:
        token = Token(f"end {producer}")
        request = EndRequest(ID, producer, commit, version)
        self.carry_out(self.coordinator.end(request, token, self.now))
        return token

    def error(self, token: Token) -> ErrorCode:
        result: Any = token.result
        error = result.error if isinstance(result, GivenProducer) else result
        assert isinstance(error, ErrorCode)
        return error


def add_request(producer: ProducerEpoch, *numbers: int, version: int = VERSION_2) -> AddRequest:
    return AddRequest(ID, producer, frozenset(("t", it) for it in numbers), version)
