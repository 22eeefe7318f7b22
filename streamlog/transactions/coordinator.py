"""Kafka's TransactionCoordinator for the transactional ids of one partition of ``__transaction_state``. Pure.

How to drive it: pass requests, with the time, and carry out the effects that come back, in order. ``Write``
appends; its ``then`` is called when the record is committed, in the order in which they were appended, or when it is
not to be. ``SendMarkers`` tells partitions how a transaction ends; ``marked`` is called for each that has its marker.
Call ``tick`` at ``next_ms``, and ``begin`` once, first: it has transactions end whose end the leader before has
prepared.

What holds of a transactional id is what the log says last, or is about to say where that follows from it: that all
partitions know how a transaction has ended. While another change is on its way to the log no further one is begun: a
client that asks for one is told CONCURRENT_TRANSACTIONS, and asks again. Partitions that are to be added wait for
their turn instead, up to ``HELD_MS``: a producer adds those of its next transaction as soon as it hears that the last
one is decided, while the markers are on their way, and would ask again after 20 ms. So there are never two
transactions of one id, and a crash leaves the state before the change or the one after it. An end that is prepared is
decided: it is completed by this coordinator or the next one, and nothing else happens to the id until then.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, NamedTuple

from streamlog.config import TransactionsSection
from streamlog.coordination.deadlines import Deadlines
from streamlog.coordination.effects import NONE, Now, SendReply, Write
from streamlog.transactions.records import transaction_record
from streamlog.transactions.replay import KnownTransaction
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
    NO_EPOCH,
    NO_PRODUCER,
    VERSION_2,
    PartitionId,
    ProducerEpoch,
    Transaction,
    TransactionState,
    new_transaction,
)
from streamlog.wire.error_codes import ErrorCode

RETRY_MS: Final = 100
"""Until what failed, or could not be done at the time, is tried again."""
COMPLETION_MS: Final = 50
"""So long the record that all partitions have their markers waits for one of the next transaction, which takes its
place: a sync less for a producer that goes on at once.
"""
HELD_MS: Final = 1_000
"""So long at most partitions wait to be added."""
HELD_MAX: Final = 1_000
"""Requests for one transactional id that may wait; a transaction has its partitions added by several nodes at once."""


class TransactionDue(NamedTuple):
    """Something that has a deadline: an open transaction, an end of which every partition knows, an id, requests that
    wait.
    """

    what: Literal["abort", "complete", "expire", "refuse"]
    transactional_id: str


class _HeldRequest(NamedTuple):
    """Partitions that are to be added once no change is on its way; refused if that takes longer."""

    request: AddRequest
    token: object
    until_ms: int


class _Entry:
    """A transactional id."""

    __slots__ = ("held", "is_changing", "kept", "name", "unmarked")

    def __init__(self, name: str, kept: Transaction | None) -> None:
        self.name = name
        self.kept = kept
        """What the log says; None: nothing yet."""
        self.is_changing = False
        """Another state is on its way to the log, or about to be."""
        self.unmarked: set[PartitionId] = set()
        """Partitions that have yet to be told how the transaction ends."""
        self.held: list[_HeldRequest] = []
        """In the order in which they came."""


class TransactionCoordinator:
    """One leadership of the partition, from what its log says on."""

    def __init__(
        self, settings: TransactionsSection, transactions: Iterable[KnownTransaction] = ()
    ) -> None:
        """``transactions``: as read from the log."""
        self._settings = settings
        self._entries = {name: _Entry(name, kept) for name, kept in transactions}
        self._deadlines: Deadlines[TransactionDue] = Deadlines()
        self._effects: list[Effect] = []
        self.ended = Counter[str]()
        """Transactions that this leadership has ended: ``commit``, ``abort``, ``timeout``, ``fence`` for the
        next producer, or ``operator``.
        """

    def begin(self, now: Now) -> list[Effect]:
        """Go on with what the leader before was at."""
        for entry in self._entries.values():
            if entry.kept is not None:
                self._follow(entry, entry.kept, now)
        return self._take()

    # What producers and leaders of partitions ask for

    def init_producer(self, request: InitRequest, token: object, now: Now) -> list[Effect]:
        """``token`` is answered with a ``GivenProducer``."""
        self._init(request, token, now)
        return self._take()

    def add_partitions(self, request: AddRequest, token: object, now: Now) -> list[Effect]:
        """``token`` is answered with an error code."""
        self._add(_HeldRequest(request, token, now.ms + HELD_MS), now)
        return self._take()

    def verify(self, request: AddRequest) -> Mapping[PartitionId, ErrorCode]:
        """Whether each of the partitions belongs to the producer's open transaction already."""
        entry = self._entries.get(request.transactional_id)
        error = self._standing(entry, request.producer)
        kept = None if entry is None else entry.kept
        if error is NONE and kept is not None and kept.state.is_prepared:
            error = ErrorCode.concurrent_transactions
        if error is not NONE or kept is None:
            return dict.fromkeys(request.partitions, error)
        known = kept.partitions if kept.state is TransactionState.ONGOING else frozenset()
        return {
            it: NONE if it in known else ErrorCode.transaction_abortable
            for it in request.partitions
        }

    def end(self, request: EndRequest, token: object, now: Now) -> list[Effect]:
        """``token`` is answered with a ``GivenProducer``, once it is decided how the transaction ends."""
        self._end(request, token, now)
        return self._take()

    def abort(self, transactional_id: str, token: object, now: Now) -> list[Effect]:
        """An operator wants the open transaction aborted, and its producer fenced. ``token`` is answered with an error
        code.
        """
        entry = self._entries.get(transactional_id)
        kept = None if entry is None else entry.kept
        if entry is None or kept is None:
            self._answer(token, ErrorCode.transactional_id_not_found)
        elif entry.is_changing:
            self._answer(token, ErrorCode.concurrent_transactions)
        elif kept.state is not TransactionState.ONGOING:
            self._answer(token, ErrorCode.invalid_txn_state)
        else:

            def done(error: ErrorCode) -> None:
                if error is NONE:
                    self.ended["operator"] += 1
                self._answer(token, error)

            self._end_with_next_epoch(entry, kept, done, commit=False, may_retry=False, now=now)
        return self._take()

    def marked(
        self, transactional_id: str, producer: ProducerEpoch, partition: PartitionId, now: Now
    ) -> list[Effect]:
        """This partition has the marker that ends the transaction of this producer; or there is no such partition
        any more.
        """
        entry = self._entries.get(transactional_id)
        kept = None if entry is None else entry.kept
        if entry is not None and kept is not None and kept.is_ended_for(producer):
            entry.unmarked.discard(partition)
            self._complete_if_marked(entry, now)
        return self._take()

    def find(self, transactional_id: str) -> Transaction | None:
        """What the log says of it."""
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.kept

    def transactions(self) -> Iterable[KnownTransaction]:
        """As they are just now."""
        for entry in self._entries.values():
            if entry.kept is not None:
                yield KnownTransaction(entry.name, entry.kept)

    # What happens by itself

    @property
    def next_ms(self) -> int | None:
        """When ``tick`` has something to do, or earlier."""
        return self._deadlines.next_ms

    def tick(self, now: Now) -> list[Effect]:
        """What has a deadline by now."""
        for due in self._deadlines.due(now.ms):
            entry = self._entries.get(due.transactional_id)
            if entry is not None:
                self._act(due, entry, now)
        return self._take()

    def resume(self, away_ms: int, now: Now) -> None:
        """No producer could be heard for so long, by no fault of theirs: whatever has a deadline has as much longer."""
        self._deadlines.put_off(away_ms)

    def close(self) -> list[Effect]:
        """Another coordinates now; who waits is told so."""
        for entry in self._entries.values():
            for asked in entry.held:
                self._answer(asked.token, ErrorCode.not_coordinator)
            entry.held.clear()
        self._entries.clear()
        return self._take()

    # InitProducerId

    def _init(self, request: InitRequest, token: object, now: Now) -> None:
        if not 0 < request.timeout_ms <= self._settings.timeout_ms_max:
            self._give(token, ErrorCode.invalid_transaction_timeout)
            return
        entry = self._entries.get(request.transactional_id)
        if entry is None:
            if len(self._entries) >= self._settings.ids_per_partition_max:
                self._give(token, ErrorCode.policy_violation)
                return
            entry = self._entries[request.transactional_id] = _Entry(request.transactional_id, None)
        if entry.is_changing or (entry.kept is not None and entry.kept.state.is_prepared):
            self._give(token, ErrorCode.concurrent_transactions)
        elif entry.kept is None:
            self._init_new(entry, request, token)
        elif self._is_fenced(entry.kept, request.known):
            self._give(token, ErrorCode.producer_fenced)
        elif entry.kept.state is TransactionState.ONGOING:
            self._fence(entry, entry.kept, request, token, now)
        else:
            self._init_known(entry, entry.kept, request, token, now)

    def _is_fenced(self, kept: Transaction, known: ProducerEpoch) -> bool:
        """Another producer has come after this one."""
        present = ProducerEpoch(kept.producer_id, kept.producer_epoch)
        return known not in (NO_PRODUCER_EPOCH, present) and not kept.gave_next(known)

    def _init_new(self, entry: _Entry, request: InitRequest, token: object) -> None:
        def taken(producer_id: int, now: Now) -> None:
            made = new_transaction(producer_id, request.timeout_ms, now.wall_ms)
            producer = ProducerEpoch(producer_id, 0)
            given = made.initialised(producer, NO_EPOCH, request.timeout_ms, now.wall_ms)
            self._change_and_give(entry, given, token)

        self._take_producer_id(entry, token, taken)

    def _init_known(
        self, entry: _Entry, kept: Transaction, request: InitRequest, token: object, now: Now
    ) -> None:
        """No transaction is open."""
        if kept.gave_next(request.known):
            given = kept.initialised(
                kept.producer, kept.last_epoch, request.timeout_ms, now.wall_ms
            )
            self._change_and_give(entry, given, token)
            return
        last_epoch = NO_EPOCH if request.known == NO_PRODUCER_EPOCH else kept.producer_epoch
        if not kept.is_used_up:
            producer = ProducerEpoch(kept.producer_id, kept.producer_epoch + 1)
            given = kept.initialised(producer, last_epoch, request.timeout_ms, now.wall_ms)
            self._change_and_give(entry, given, token)
            return

        def taken(producer_id: int, now: Now) -> None:
            producer = ProducerEpoch(producer_id, 0)
            given = kept.initialised(producer, last_epoch, request.timeout_ms, now.wall_ms)
            self._change_and_give(entry, given, token)

        self._take_producer_id(entry, token, taken)

    def _fence(
        self, entry: _Entry, kept: Transaction, request: InitRequest, token: object, now: Now
    ) -> None:
        """The open transaction is aborted first; the client is to ask again."""

        def done(error: ErrorCode) -> None:
            if error is NONE:
                self.ended["fence"] += 1
            self._give(token, ErrorCode.concurrent_transactions if error is NONE else error)

        self._end_with_next_epoch(
            entry, kept, done, commit=False, may_retry=request.known != NO_PRODUCER_EPOCH, now=now
        )

    # AddPartitionsToTxn

    def _add(self, asked: _HeldRequest, now: Now) -> None:
        request, token = asked.request, asked.token
        entry = self._entries.get(request.transactional_id)
        error = self._standing(entry, request.producer)
        kept = None if entry is None else entry.kept
        if error is not NONE or entry is None or kept is None:
            self._answer(token, error)
        elif entry.is_changing or kept.state.is_prepared:
            self._hold(entry, asked, now)
        elif kept.state is TransactionState.ONGOING and request.partitions <= kept.partitions:
            self._answer(token, NONE)
        else:
            changed = kept.with_partitions(request.partitions, request.version, now.wall_ms)
            if len(changed.partitions) > self._settings.partitions_per_transaction_max:
                self._answer(token, ErrorCode.policy_violation)
            else:
                self._change(entry, changed, lambda error: self._answer(token, error))

    def _hold(self, entry: _Entry, asked: _HeldRequest, now: Now) -> None:
        if len(entry.held) >= HELD_MAX or asked.until_ms <= now.ms:
            self._answer(asked.token, ErrorCode.concurrent_transactions)
            return
        entry.held.append(asked)
        due = TransactionDue("refuse", entry.name)
        if self._deadlines.get(due) is None:
            self._deadlines.set(due, asked.until_ms)

    def _go_on(self, entry: _Entry, now: Now) -> None:
        """No change is on its way: what waited for that has its turn, one change after the other."""
        held, entry.held = entry.held, []
        for asked in held:
            self._add(asked, now)
        if not entry.held:
            self._deadlines.clear(TransactionDue("refuse", entry.name))

    def _refuse_held(self, entry: _Entry, now: Now) -> None:
        held, entry.held = entry.held, []
        for asked in held:
            self._hold(entry, asked, now)  # those that came later have some time left

    def _standing(self, entry: _Entry | None, producer: ProducerEpoch) -> ErrorCode:
        """Why this is not the producer of the transactional id; ``NONE`` if it is."""
        kept = None if entry is None else entry.kept
        if kept is None or producer.producer_id not in (
            kept.producer.producer_id,
            kept.producer_id,
            kept.previous_id,
        ):
            return ErrorCode.invalid_producer_id_mapping
        return NONE if producer == kept.producer else ErrorCode.producer_fenced

    # EndTxn

    def _end(self, request: EndRequest, token: object, now: Now) -> None:
        entry = self._entries.get(request.transactional_id)
        kept = None if entry is None else entry.kept
        if entry is None or kept is None:
            self._give(token, ErrorCode.invalid_producer_id_mapping)
            return
        if _is_end_again(kept, request):
            self._end_again(kept, request, token)
            return
        error = self._standing(entry, request.producer)
        if error is not NONE:
            self._give(token, error)
        elif entry.is_changing:
            self._give(token, ErrorCode.concurrent_transactions)
        elif kept.state is TransactionState.ONGOING:
            self._end_open(entry, kept, request, token, now)
        elif request.version < VERSION_2 and kept.state is not TransactionState.EMPTY:
            self._end_again(kept, request, token)
        elif kept.state.is_prepared:  # the transaction before
            self._give(token, ErrorCode.concurrent_transactions)
        elif request.version >= VERSION_2 and not request.commit:
            self._end_none(entry, kept, token, now)
        else:
            self._give(token, ErrorCode.invalid_txn_state)

    def _end_again(self, kept: Transaction, request: EndRequest, token: object) -> None:
        """It was prepared already."""
        if kept.commits != request.commit:
            self._give(token, ErrorCode.invalid_txn_state)
        elif kept.state.is_prepared:
            self._give(token, ErrorCode.concurrent_transactions)
        else:
            self._answer(token, GivenProducer(NONE, kept.producer))

    def _end_open(
        self, entry: _Entry, kept: Transaction, request: EndRequest, token: object, now: Now
    ) -> None:
        def done(error: ErrorCode) -> None:
            if error is NONE:
                assert entry.kept is not None
                self.ended["commit" if request.commit else "abort"] += 1
                self._answer(token, GivenProducer(NONE, entry.kept.producer))
            else:
                self._give(token, error)

        if request.version >= VERSION_2:
            self._end_with_next_epoch(
                entry, kept, done, commit=request.commit, may_retry=True, now=now
            )
        else:
            self._change(entry, kept.prepared(commit=request.commit, now_ms=now.wall_ms), done)

    def _end_none(self, entry: _Entry, kept: Transaction, token: object, now: Now) -> None:
        """A producer aborts what it believes to have begun. No partition has any of it, nor takes it in later: the
        producer has another epoch then.
        """

        def done(error: ErrorCode) -> None:
            if error is NONE:
                assert entry.kept is not None
                self._answer(token, GivenProducer(NONE, entry.kept.producer))
            else:
                self._give(token, error)

        def ended(next_id: int, now: Now) -> None:
            prepared = kept.prepared_with_next_epoch(
                commit=False, may_retry=True, next_id=next_id, now_ms=now.wall_ms
            )
            self._change(entry, prepared.completed(now.wall_ms), done)

        self._with_next_id(entry, kept, ended, done, now)

    def _end_with_next_epoch(
        self,
        entry: _Entry,
        kept: Transaction,
        done: Callable[[ErrorCode], None],
        *,
        commit: bool,
        may_retry: bool,
        now: Now,
    ) -> None:
        def prepare(next_id: int, now: Now) -> None:
            prepared = kept.prepared_with_next_epoch(
                commit=commit, may_retry=may_retry, next_id=next_id, now_ms=now.wall_ms
            )
            self._change(entry, prepared, done)

        self._with_next_id(entry, kept, prepare, done, now)

    def _with_next_id(
        self,
        entry: _Entry,
        kept: Transaction,
        then: Callable[[int, Now], None],
        failed: Callable[[ErrorCode], None],
        now: Now,
    ) -> None:
        """``then`` hears of a producer id where the epochs of the present one are used up, else of none."""
        if not kept.is_used_up:
            then(NO_PRODUCER, now)
            return
        self._request_producer_id(entry, then, failed)

    # Changes

    def _take_producer_id(
        self, entry: _Entry, token: object, then: Callable[[int, Now], None]
    ) -> None:
        self._request_producer_id(entry, then, lambda error: self._give(token, error))

    def _request_producer_id(
        self,
        entry: _Entry,
        then: Callable[[int, Now], None],
        failed: Callable[[ErrorCode], None],
    ) -> None:
        entry.is_changing = True

        def taken(found: int | ErrorCode, now: Now) -> list[Effect]:
            entry.is_changing = False
            if not self._has(entry):
                failed(ErrorCode.not_coordinator)
            elif isinstance(found, ErrorCode):
                self._drop_if_new(entry)
                failed(found)
            else:
                then(found, now)
            self._go_on(entry, now)
            return self._take()

        self._effects.append(TakeProducerId(taken))

    def _change_and_give(self, entry: _Entry, changed: Transaction, token: object) -> None:
        def done(error: ErrorCode) -> None:
            given = changed.producer if error is NONE else NO_PRODUCER_EPOCH
            self._answer(token, GivenProducer(error, given))

        self._change(entry, changed, done)

    def _change(
        self, entry: _Entry, changed: Transaction, done: Callable[[ErrorCode], None]
    ) -> None:
        """``done`` hears when it is so, or that it will not be."""
        entry.is_changing = True

        def written(error: ErrorCode, now: Now) -> list[Effect]:
            entry.is_changing = False
            if not self._has(entry):  # another coordinates now, and knows whether it was written
                done(ErrorCode.not_coordinator if error is NONE else error)
            elif error is NONE:
                entry.kept = changed
                done(NONE)
                self._follow(entry, changed, now)
            else:
                self._drop_if_new(entry)
                done(error)
            self._go_on(entry, now)
            return self._take()

        self._effects.append(Write((transaction_record(entry.name, changed),), written))

    def _follow(self, entry: _Entry, kept: Transaction, now: Now) -> None:
        """Do, and wait for, what the state asks for."""
        name = entry.name
        self._deadlines.clear(TransactionDue("complete", name))
        self._deadlines.clear(TransactionDue("abort", name))
        self._deadlines.clear(TransactionDue("expire", name))
        if kept.state is TransactionState.ONGOING:
            left_ms = kept.start_ms + kept.timeout_ms - now.wall_ms
            self._deadlines.set(
                TransactionDue("abort", name), now.ms + min(kept.timeout_ms, max(0, left_ms))
            )
        elif kept.state.is_prepared:
            entry.unmarked = set(kept.partitions)
            if kept.partitions:
                producer = ProducerEpoch(kept.producer_id, kept.producer_epoch)
                self._effects.append(
                    SendMarkers(name, producer, kept.commits, kept.partitions, kept.version)
                )
            self._complete_if_marked(entry, now)
        else:
            left_ms = kept.update_ms + self._settings.id_expiration_ms - now.wall_ms
            self._deadlines.set(TransactionDue("expire", name), now.ms + max(0, left_ms))

    def _complete_if_marked(self, entry: _Entry, now: Now) -> None:
        """It counts at once, and is written a little later, unless the record of the next transaction has come by then
        and says as much. Until one of both is in the log the next coordinator would send the markers again, which does
        nothing.
        """
        if entry.unmarked or entry.is_changing or entry.kept is None:
            return
        entry.kept = entry.kept.completed(now.wall_ms)
        self._follow(entry, entry.kept, now)
        self._deadlines.set(TransactionDue("complete", entry.name), now.ms + COMPLETION_MS)
        self._go_on(entry, now)

    def _write_completed(self, entry: _Entry, completed: Transaction) -> None:
        def written(error: ErrorCode, now: Now) -> list[Effect]:
            if error is not NONE and self._has(entry) and entry.kept is completed:
                self._deadlines.set(TransactionDue("complete", entry.name), now.ms + RETRY_MS)
            return self._take()

        self._effects.append(Write((transaction_record(entry.name, completed),), written))

    def _act(self, due: TransactionDue, entry: _Entry, now: Now) -> None:
        kept = entry.kept
        if due.what == "refuse":
            self._refuse_held(entry, now)
            return
        if kept is None:
            return
        if entry.is_changing:
            self._deadlines.set(due, now.ms + RETRY_MS)
            return
        match due.what:
            case "abort":
                if kept.state is TransactionState.ONGOING:
                    self._time_out(due, entry, kept, now)
            case "complete":
                if not kept.is_open:
                    self._write_completed(entry, kept)
            case "expire":
                self._expire(due, entry, now)

    def _time_out(self, due: TransactionDue, entry: _Entry, kept: Transaction, now: Now) -> None:
        """Its producer, if it still is the last one, may find out by what it asks for next, and go on."""

        def done(error: ErrorCode) -> None:
            if error is NONE:
                self.ended["timeout"] += 1
            elif self._has(entry):
                self._deadlines.set(due, now.ms + RETRY_MS)

        self._end_with_next_epoch(entry, kept, done, commit=False, may_retry=True, now=now)

    def _expire(self, due: TransactionDue, entry: _Entry, now: Now) -> None:
        entry.is_changing = True

        def written(error: ErrorCode, then: Now) -> list[Effect]:
            entry.is_changing = False
            if self._has(entry):
                if error is NONE:
                    del self._entries[entry.name]
                else:
                    self._deadlines.set(due, now.ms + RETRY_MS)
            self._go_on(entry, then)
            return self._take()

        self._effects.append(Write((transaction_record(entry.name, None),), written))

    def _has(self, entry: _Entry) -> bool:
        """It is still this one that goes by its name."""
        return self._entries.get(entry.name) is entry

    def _drop_if_new(self, entry: _Entry) -> None:
        """Nothing was ever written of it."""
        if entry.kept is None:
            del self._entries[entry.name]

    # Effects

    def _give(self, token: object, error: ErrorCode) -> None:
        self._answer(token, GivenProducer(error))

    def _answer(self, token: object, result: ErrorCode | GivenProducer) -> None:
        self._effects.append(SendReply(token, result))

    def _take(self) -> list[Effect]:
        """What has been gathered since the last time, in order."""
        effects, self._effects = self._effects, []
        return effects


def _is_end_again(kept: Transaction, request: EndRequest) -> bool:
    """The producer's epoch is the one that this end of its transaction has taken it."""
    if request.version < VERSION_2 or kept.version < VERSION_2:
        return False
    if kept.state in (TransactionState.EMPTY, TransactionState.ONGOING):
        return False
    return kept.gave_next(request.producer)
