"""Whether transactions kept Kafka's promises: list-append over topics, in the way of Elle. Pure.

Elle itself is not used: it comes from a registry that builds of this project do not reach. The names of what is looked
for are its own (Adya's). A transaction appends values, each written once, to lists, and reads lists; a list is a
partition. Readers see ``read_committed``.

- *G1a*, an aborted read: a value of a transaction that was aborted.
- *G1b*, an intermediate read: in one list some values of a transaction, and not those that follow.
- *G1c*, circular information flow: a transaction saw what another one wrote, which saw, perhaps through others, what
  the first one wrote. One that ended before another began counts as seen.
- *lost*: values of a transaction that was committed are missing in the end. *fractured*: some are there, some are not,
  whatever became of it. *double*: a value is there twice. *garbage*: nobody wrote it.
- *order*: the same offset has two values; or a transaction ended before another began, and its value comes later.

Kafka's transactions are atomic, and not isolated from each other while they are open. So dirty writes (G0: two
transactions that append to the same two lists in different orders) and what needs locks on reads (G-single, G2) are no
violations; G0 is counted.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from tests.history import Violation

SHOWN: Final = 5


class Read(NamedTuple):
    """Of one list, from an offset to the last stable one."""

    key: str
    start: int
    end: int
    values: Mapping[int, str]
    """By offset; markers have offsets, too."""


@dataclass
class Transaction:
    """As its client saw it. One that only reads is committed."""

    name: str
    call_ns: int
    return_ns: int | None
    """None: its outcome is unknown."""
    is_committed: bool | None
    appends: Sequence[tuple[str, str]] = ()
    """(key, value), in order."""
    reads: Sequence[Read] = field(default_factory=tuple)


class Summary(NamedTuple):
    """What was looked at."""

    transactions: int
    committed: int
    aborted: int
    unknown: int
    reads: int
    dirty_writes: int
    """Pairs of transactions that G0 is true of."""

    def __str__(self) -> str:
        return (
            f"{self.transactions} transactions ({self.committed} committed, {self.aborted} aborted,"
            f" {self.unknown} unknown), {self.reads} reads, {self.dirty_writes} dirty writes"
        )


def check_transactions(history: Sequence[Transaction], final: Sequence[Read]) -> Summary:
    """Raises Violation. ``final``: each list, as a whole, when all transactions had ended."""
    problems = [
        *_Checker(history, final).problems(),
    ]
    if problems:
        raise Violation("\n".join(problems[:SHOWN]))
    writers = [it for it in history if it.appends]
    return Summary(
        len(writers),
        sum(it.is_committed is True for it in writers),
        sum(it.is_committed is False for it in writers),
        sum(it.is_committed is None for it in writers),
        sum(len(it.reads) for it in history),
        _dirty_writes(writers, final),
    )


class _Checker:
    def __init__(self, history: Sequence[Transaction], final: Sequence[Read]) -> None:
        self._history = history
        self._final = final
        self._writers = {value: it for it in history for _, value in it.appends}
        self._places: dict[str, list[tuple[str, int]]] = defaultdict(list)
        """Of each value, in the end."""
        for read in final:
            for offset, value in read.values.items():
                self._places[value].append((read.key, offset))

    def problems(self) -> Iterator[str]:
        yield from self._order()
        yield from self._values()
        yield from self._outcomes()
        yield from self._intermediate()
        yield from self._late_values()
        yield from self._cycles()

    @property
    def _reads(self) -> Iterator[Read]:
        yield from self._final
        for it in self._history:
            yield from it.reads

    def _order(self) -> Iterator[str]:
        known: dict[tuple[str, int], str] = {}
        for read in self._reads:
            for offset, value in read.values.items():
                before = known.setdefault((read.key, offset), value)
                if before != value:
                    yield f"order: {read.key} {offset} was {before}, and {value} in another read"

    def _values(self) -> Iterator[str]:
        for value, places in self._places.items():
            if len(places) > 1:
                yield f"double: {value} is at {places}"
        for read in self._reads:
            for offset, value in read.values.items():
                writer = self._writers.get(value)
                if writer is None:
                    yield f"garbage: {read.key} {offset} is {value}, which nobody wrote"
                elif writer.is_committed is False:
                    yield f"G1a: {read.key} {offset} is {value} of {writer.name}, which was aborted"
                elif (read.key, value) not in writer.appends:
                    yield f"garbage: {value} of {writer.name} is in {read.key}"

    def _outcomes(self) -> Iterator[str]:
        for it in self._history:
            missing = [value for _, value in it.appends if value not in self._places]
            if it.is_committed and missing:
                yield f"lost: {missing} of {it.name}, which was committed"
            elif it.is_committed is None and 0 < len(missing) < len(it.appends):
                yield f"fractured: {missing} of {it.name} are missing, its other values are not"

    def _intermediate(self) -> Iterator[str]:
        for read in self._reads:
            seen = set(read.values.values())
            for writer in _distinct(self._writers[it] for it in seen if it in self._writers):
                there = [value for key, value in writer.appends if key == read.key]
                unseen = [value for value in there if value not in seen]
                late = [it for it in unseen if self._offset(read.key, it) >= read.start]
                if late:
                    yield f"G1b: a read of {read.key} up to {read.end} saw {writer.name} without {late}"

    def _offset(self, key: str, value: str) -> int:
        return next((offset for at, offset in self._places.get(value, ()) if at == key), -1)

    def _late_values(self) -> Iterator[str]:
        """Of transactions that ended before another began, and whose values come later."""
        for read in self._final:
            began = 0
            by: Transaction | None = None
            for offset in sorted(read.values):
                writer = self._writers.get(read.values[offset])
                if writer is None:
                    continue
                if writer.return_ns is not None and writer.return_ns < began and by is not None:
                    yield (
                        f"order: {read.key} {offset} is of {writer.name}, which ended before {by.name}"
                        " began, whose value comes first"
                    )
                if writer.call_ns > began:
                    began, by = writer.call_ns, writer

    def _cycles(self) -> Iterator[str]:
        """Through reads and real time. The latter is a line, on which each begins and ends: so it costs little."""
        edges: dict[str, set[str]] = defaultdict(set)
        for it in self._history:
            for read in it.reads:
                for value in read.values.values():
                    writer = self._writers.get(value)
                    if writer is not None and writer is not it:
                        edges[writer.name].add(it.name)
        moments = sorted(
            [(it.call_ns, 1, it.name) for it in self._history]
            + [(it.return_ns, 0, it.name) for it in self._history if it.return_ns is not None]
        )
        for number, (_, begins, name) in enumerate(moments):
            moment = f"moment {number}"
            if begins:
                edges[moment].add(name)
            else:
                edges[name].add(moment)
        for number in range(len(moments) - 1):
            edges[f"moment {number}"].add(f"moment {number + 1}")
        for group in strongly_connected(edges):
            names = sorted(name for name in group if not name.startswith("moment "))
            yield f"G1c: {', '.join(names)} saw each other"


def _distinct(transactions: Iterable[Transaction]) -> Iterable[Transaction]:
    return {it.name: it for it in transactions}.values()


def _dirty_writes(writers: Sequence[Transaction], final: Sequence[Read]) -> int:
    """Pairs that come after each other in two lists, in different orders."""
    owners = {value: it.name for it in writers for _, value in it.appends}
    follows: set[tuple[str, str]] = set()
    for read in final:
        names = [owners[read.values[offset]] for offset in sorted(read.values)]
        follows |= {pair for pair in pairwise(names) if pair[0] != pair[1]}
    return sum((b, a) in follows for a, b in follows) // 2


def strongly_connected(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of more than one node (Tarjan), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_stack: set[str] = set()
    stack: list[str] = []
    groups: list[list[str]] = []
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges.get(target, ()))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        group.append(member)
                        if member == node:
                            break
                    if len(group) > 1:
                        groups.append(group)
    return groups
