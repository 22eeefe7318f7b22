"""What streams may have that take messages of others, message by message: a naive reading of docs/mirrors.md."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from streamlog.metadata.stream.stream_origin import StreamOrigin
from tests.simulation.checkers import Violation
from tests.simulation.schedule_oracle import Erasure, Message

SOURCE: Final = "Nats-Stream-Source"


class Rule(NamedTuple):
    """What a mirror or source wants of its origin."""

    origin: StreamOrigin
    takes: Callable[[str], str | None]
    """The subject that a message gets; None: it is not wanted."""


class OriginLog:
    """What is committed of a stream that others take messages of."""

    def __init__(self, name: str, is_gone: Callable[[int], bool]) -> None:
        """``is_gone``: whether the message at an offset is deleted, or may have gone by a purge or a limit."""
        self.name = name
        self.messages: dict[int, Message] = {}
        self.is_gone = is_gone

    def take(self, entry: Message | Erasure) -> None:
        if isinstance(entry, Message):
            self.messages[entry.offset] = entry

    def wanted(self, rule: Rule, start: int, end: int | None = None) -> Iterator[int]:
        """The offsets of ``[start, end)`` that have messages which it wants, gone or not."""
        for offset in range(start, max(self.messages, default=-1) + 1 if end is None else end):
            message = self.messages.get(offset)
            if message is not None and rule.takes(message.subject) is not None:
                yield offset


class Passed(NamedTuple):
    """A message that was not taken, and never will be."""

    origin: OriginLog
    offset: int
    by: str

    def __str__(self) -> str:
        message = self.origin.messages[self.offset]
        return f"{message.payload} at {self.offset} of {self.origin.name} is missing in {self.by}"


class SourcesOracle:
    """Of one log with sources. Told of what is committed, in order; raises Violation."""

    def __init__(self, name: str, rules: Sequence[Rule], origins: Mapping[str, OriginLog]) -> None:
        """``origins``: all that there ever were, by their identities."""
        self._name = name
        self._rules = {it.origin.index_name: it for it in rules}
        self._origins = origins
        self._ends: dict[str, dict[str, int]] = {it: {} for it in self._rules}
        """Behind the last message of each source, by the origin's identity, the newest last."""
        self._passed: list[Passed] = []
        self.taken = 0

    def take(self, entry: Message | Erasure) -> None:
        if isinstance(entry, Erasure) or SOURCE not in entry.headers:
            return
        said = [*entry.headers[SOURCE].split(" "), ""]
        place, sequence, filters, made, subject, identity = said[:6]
        index_name, offset = f"{place} {filters} {made}", int(sequence) - 1
        told = f"{self._name}: {entry.payload} at {entry.offset}, which {index_name!r} has brought"
        rule, origin = self._rules.get(index_name), self._origins.get(identity)
        if rule is None or origin is None or origin.name != rule.origin.name:
            raise Violation(f"{told} from {identity}, is of no source")
        message = origin.messages.get(offset)
        if message is None or message.payload != entry.payload or message.subject != subject:
            raise Violation(f"{told}, is not what is committed at {offset} there: {message}")
        if rule.takes(subject) != entry.subject:
            raise Violation(f"{told} from {subject}, has the subject {entry.subject}")
        ends = self._ends[index_name]
        end = ends.get(identity, 0)
        if offset < end:
            raise Violation(f"{told} from {offset}, comes after that of {end - 1}")
        if identity in ends and identity != list(ends)[-1]:
            raise Violation(f"{told} from {identity}, comes after those of {list(ends)[-1]}")
        self._passed += [Passed(origin, it, index_name) for it in origin.wanted(rule, end, offset)]
        ends[identity] = offset + 1
        self.taken += 1

    def missing(self, identities: Mapping[str, str]) -> list[Passed]:
        """What ought to be here by now. ``identities``: of the origins that are there, by their names."""
        found = list(self._passed)
        for index_name, rule in self._rules.items():
            identity = identities.get(rule.origin.name, "")
            origin = self._origins.get(identity)
            if origin is not None:
                end = self._ends[index_name].get(identity, 0)
                found += [Passed(origin, it, index_name) for it in origin.wanted(rule, end)]
        return [it for it in found if not it.origin.is_gone(it.offset)]


class MirrorOracle:
    """Of one mirror, likewise."""

    def __init__(self, name: str, rule: Rule, origins: Mapping[str, OriginLog]) -> None:
        """``origins``: those that are there, by their names."""
        self._name = name
        self._rule = rule
        self._origins = origins
        self._end = 0
        """Of the messages."""
        self._start: int | None = None
        """Of the first one."""
        self._unnamed: set[int] = set()
        """Offsets that are left out, and that nothing names yet."""
        self._passed: list[Passed] = []

    @property
    def _origin(self) -> OriginLog:
        return self._origins[self._rule.origin.name]

    def take(self, entry: Message | Erasure) -> None:
        if isinstance(entry, Erasure):
            if self._start is not None:
                self._unnamed |= set(range(self._end, entry.offset))
            self._unnamed = {it for it in self._unnamed if it not in entry.erased}
            self._pass(entry.offset + 1)
            return
        message, offset = self._origin.messages.get(entry.offset), entry.offset
        is_same = message is not None and _as_mirrored(message) == _as_mirrored(entry)
        if message is None or not is_same or self._rule.takes(entry.subject) is None:
            raise Violation(f"{self._name}: {entry} is not what is committed there: {message}")
        if self._start is not None:
            self._unnamed |= set(range(self._end, offset))
        if self._unnamed:
            unnamed = sorted(self._unnamed)
            raise Violation(f"{self._name}: {entry} follows, and nothing names {unnamed}")
        self._pass(offset)
        self._start = offset if self._start is None else self._start
        self._end = offset + 1

    def _pass(self, end: int) -> None:
        """Nothing is below that which was not taken yet."""
        name = self._name
        self._passed += [
            Passed(self._origin, it, name) for it in self._origin.wanted(self._rule, self._end, end)
        ]
        self._end = max(self._end, end)

    def missing(self, _: Mapping[str, str]) -> list[Passed]:
        """As that of a ``SourcesOracle``."""
        rest = self._origin.wanted(self._rule, self._end)
        found = [*self._passed, *(Passed(self._origin, it, self._name) for it in rest)]
        return [it for it in found if not it.origin.is_gone(it.offset)]


def _as_mirrored(message: Message) -> Message:
    """Without the place in a batch, and without whom a publisher's message named for the answer."""
    headers = {name: it for name, it in message.headers.items() if name != "reply"}
    return message._replace(batch=0, headers=headers)
