"""What transactions promise, whatever happens: all of one or nothing, in every partition, for every reader.

``Transactions`` hears what producers want and are told; ``DecidedLog`` goes through what is committed of one
partition, naively, batch by batch. Both raise Violation.
"""

from collections.abc import Sequence
from typing import NamedTuple

from streamlog.log.log import PartitionLog
from streamlog.model import TopicPartition
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records
from streamlog.record.transaction_marker import marker_of
from tests.simulation.checkers import Violation

READ_BYTES = 1 << 20


class TransactionKey(NamedTuple):
    """One of a transactional id."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name}:{self.number}"


def value_of(name: str, number: int, place: int, what: str = "") -> str:
    """Of a record: no two have one."""
    return f"{name}:{number}:{place}{what}"


def key_of(value: str) -> TransactionKey:
    name, number, _ = value.split(":", 2)
    return TransactionKey(name, int(number))


class Promised:
    """What is known of a transaction from without."""

    def __init__(self, key: TransactionKey) -> None:
        self.key = key
        self.sent: dict[TopicPartition, list[str]] = {}
        self.stored: dict[TopicPartition, list[str]] = {}
        """Acknowledged by the leaders."""
        self.may_commit = False
        """Its producer has asked for that."""
        self.is_committed: bool | None = None
        """As its producer was told."""
        self.outcomes: dict[TopicPartition, bool] = {}
        """As markers say that are committed in their partitions."""

    def decide(self, tp: TopicPartition, *, commit: bool) -> None:
        for other, known in self.outcomes.items():
            if known != commit:
                raise Violation(f"{self.key} is torn: {_how(known)} in {other}, not in {tp}")
        self.outcomes[tp] = commit
        if commit and not self.may_commit:
            raise Violation(f"{self.key} is committed in {tp}, which its producer never asked for")
        if self.is_committed is not None and commit != self.is_committed:
            raise Violation(
                f"{self.key} is {_how(commit)} in {tp}; its producer was told otherwise"
            )


class Transactions:
    """All of them. A ``History``."""

    def __init__(self) -> None:
        self.known: dict[TransactionKey, Promised] = {}
        self.committed = 0
        """So many producers were told of."""

    def of(self, value: str) -> Promised:
        return self.known[key_of(value)]

    def begins(self, name: str, number: int) -> None:
        key = TransactionKey(name, number)
        self.known[key] = Promised(key)

    def writes(self, name: str, number: int, tp: TopicPartition, values: Sequence[str]) -> None:
        self.known[TransactionKey(name, number)].sent.setdefault(tp, []).extend(values)

    def wrote(self, name: str, number: int, tp: TopicPartition, values: Sequence[str]) -> None:
        self.known[TransactionKey(name, number)].stored.setdefault(tp, []).extend(values)

    def ends(self, name: str, number: int, *, commit: bool) -> None:
        promised = self.known[TransactionKey(name, number)]
        promised.may_commit = promised.may_commit or commit

    def ended(self, name: str, number: int, *, commit: bool) -> None:
        promised = self.known[TransactionKey(name, number)]
        promised.is_committed = commit
        self.committed += commit
        for tp, known in promised.outcomes.items():
            if known != commit:
                raise Violation(
                    f"{promised.key} is {_how(known)} in {tp}, and was to be {_how(commit)}"
                )


class _Open(NamedTuple):
    """A producer's records since its last marker."""

    first_offset: int
    found: list[tuple[int, str]]


class Aborted(NamedTuple):
    """As readers are told of it, and where its marker is."""

    producer_id: int
    first_offset: int
    last_offset: int


class DecidedLog:
    """One partition's batches below the highest high watermark that any replica has shown."""

    def __init__(self, tp: TopicPartition, transactions: Transactions) -> None:
        self.tp = tp
        self.end_offset = 0
        self.visible: list[tuple[int, str]] = []
        """Offset and value of what is in no transaction, or committed, in the order of the offsets."""
        self.aborted: list[Aborted] = []
        self._transactions = transactions
        self._open: dict[int, _Open] = {}
        self._hidden: set[int] = set()
        """Offsets of what was aborted."""

    @property
    def stable_offset(self) -> int:
        """No reader of committed records may go beyond it."""
        return min((it.first_offset for it in self._open.values()), default=self.end_offset)

    def take_in(self, log: PartitionLog, start: int, end: int) -> None:
        """``log`` has what is committed between the two."""
        offset = start
        while offset < end:
            with log.read(offset, READ_BYTES, log.log_end_offset) as piece:
                data = piece.read()
            if not data:
                raise Violation(f"{self.tp}: nothing can be read at {offset}, below {end}")
            for header, batch in batches(memoryview(data)):
                if offset <= header.base_offset < end:
                    marker = marker_of(batch, header)
                    if marker is not None:
                        self._end(header.producer_id, header.base_offset, commit=marker.is_commit)
                    else:
                        found = [
                            (it.offset, (it.value or b"").decode().rstrip("."))
                            for it in iter_records(batch)
                        ]
                        self._add(header.producer_id, found, is_open=header.is_transactional)
                offset = header.next_offset
        self.end_offset = max(self.end_offset, end)

    def _add(self, producer_id: int, found: list[tuple[int, str]], *, is_open: bool) -> None:
        if not found:
            return
        if is_open:
            known = self._open.setdefault(producer_id, _Open(found[0][0], []))
            known.found.extend(found)
        else:
            self.visible += found

    def _end(self, producer_id: int, offset: int, *, commit: bool) -> None:
        ended = self._open.pop(producer_id, None)
        if ended is None:
            return
        values = [value for _, value in ended.found]
        keys = {key_of(value) for value in values}
        if len(keys) > 1:
            raise Violation(f"{self.tp}: one marker ends {sorted(map(str, keys))}")
        promised = self._transactions.of(values[0])
        promised.decide(self.tp, commit=commit)
        if commit:
            self._look_at_committed(promised, values)
            self.visible = sorted(self.visible + ended.found)
        else:
            self.aborted.append(Aborted(producer_id, ended.first_offset, offset))
            self._hidden |= {it for it, _ in ended.found}

    def _look_at_committed(self, promised: Promised, values: list[str]) -> None:
        """All that its producer was told of, and nothing twice, in its order."""
        sent, stored = promised.sent.get(self.tp, []), promised.stored.get(self.tp, [])
        if values not in (sent, stored):
            raise Violation(
                f"{self.tp}: {promised.key} has {values}; stored are {stored} of {sent}"
            )

    # What others say of it

    def seen_between(self, start: int, end: int) -> list[tuple[int, str]]:
        return [it for it in self.visible if start <= it[0] < end]

    def look_at_stable_offset(self, offset: int, whose: str) -> None:
        if offset > self.stable_offset:
            raise Violation(
                f"{self.tp}: the last stable offset of {whose} is {offset}, and the first record that is open, or the"
                f" end, is at {self.stable_offset}"
            )

    def look_at_read(self, start: int, end: int, found: list[tuple[int, str]], whose: str) -> None:
        """A reader of committed records has got that."""
        expected = self.seen_between(start, end)
        if found != expected:
            raise Violation(
                f"{self.tp}: {whose} gives {found} between {start} and {end}, not {expected}"
            )

    def check(self) -> None:
        """At the end."""
        if self._open:
            raise Violation(f"{self.tp}: transactions are open for ever: {self._open}")
        last: dict[str, tuple[int, int]] = {}
        for _, value in self.visible:
            own = value.split(">")[0]
            if own.count(":") < 2:
                continue  # it came over NATS
            name, number, place = own.split(":")
            if last.get(name, (-1, -1)) >= (int(number), int(place)):
                raise Violation(f"{self.tp}: {value} comes after {last[name]} of its producer")
            last[name] = int(number), int(place)


def check_committed(transactions: Transactions) -> None:
    """At the end: what producers were told of is there."""
    for promised in transactions.known.values():
        if not promised.is_committed:
            continue
        missing = promised.stored.keys() - promised.outcomes.keys()
        if missing:
            raise Violation(
                f"{promised.key} is committed, and nothing of it is in {sorted(missing)}"
            )


def _how(commit: bool) -> str:
    return "committed" if commit else "aborted"
