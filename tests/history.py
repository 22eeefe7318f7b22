"""What publishers did and were told, and whether the logs bear it out.

Publishers speak plain ``js.publish`` of nats-py with a ``Nats-Msg-Id``. Their names say their kind:

``s…``  sequential: waits for each ack, publishes again until it comes; its order must be kept
``p…``  pipelined: many in flight, each published again until acknowledged; they may overtake
``o…``  once: never tries again; what was not acknowledged may be there or not, but once at most
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import APIError

from tools.nodes.replica_log import ReplicaLog, Stored, differences, holes

ACK_TIMEOUT_S: Final = 1.0
RETRY_S: Final = 0.02
WINDOW: Final = 16
SHOWN: Final = 5
"""Of each kind of problem, so many are shown."""


class Lane(NamedTuple):
    """A partition and the subject that leads there."""

    stream: str
    partition: int = 0

    @property
    def subject(self) -> str:
        return f"{self.stream}.{self.partition}" if self.partition else self.stream


class Acked(NamedTuple):
    """What a publisher was told, and when (``time.monotonic``)."""

    seq: int
    at_s: float


class Violation(AssertionError):
    """A promise is broken."""


@dataclass
class LaneHistory:
    """Everything about one partition, by message identity."""

    lane: Lane
    sent: dict[str, bytes] = field(default_factory=dict)
    acked: dict[str, Acked] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    """Errors that came instead of an ack, by text; the message may have been stored all the same
    only if it was a time-out."""

    def longest_gap_s(self) -> float:
        """The longest time between one ack and the next."""
        times = sorted(ack.at_s for ack in self.acked.values())
        return max((b - a for a, b in itertools.pairwise(times)), default=0.0)


def payload(identity: str, bytes_max: int = 2000) -> bytes:
    """Content that says whose it is and has a length of its own."""
    seed = random.Random(identity)
    return f"{identity} ".encode() + seed.randbytes(seed.randrange(bytes_max))


class Publishers:
    """``async with Publishers(context, lanes) as history``: they publish until its end.

    At the end each that tries again has its last ack: a cluster that does not come back is a
    TimeoutError after ``patience_s``.
    """

    def __init__(
        self,
        context: JetStreamContext,
        lanes: Iterable[Lane],
        *,
        sequential: int = 3,
        pipelined: int = 1,
        once: int = 1,
        pause_s: float = 0.0,
        patience_s: float = 30.0,
    ) -> None:
        self._context = context
        self._lanes = list(lanes)
        self._kinds = {"s": sequential, "p": pipelined, "o": once}
        self._pause_s = pause_s
        self._patience_s = patience_s
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.history: dict[Lane, LaneHistory] = {lane: LaneHistory(lane) for lane in self._lanes}

    async def __aenter__(self) -> "dict[Lane, LaneHistory]":
        for lane in self._lanes:
            for kind, count in self._kinds.items():
                for i in range(count):
                    work = self._publish(lane, f"{kind}{i}")
                    self._tasks.append(asyncio.create_task(work))
        return self.history

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopping = True
        try:
            async with asyncio.timeout(self._patience_s if kind is None else 0.0):
                await asyncio.gather(*self._tasks)
        except TimeoutError:
            waiting = {
                lane.subject: len(history.sent.keys() - history.acked.keys())
                for lane, history in self.history.items()
            }
            if kind is None:
                last = {lane.subject: dict(h.refused) for lane, h in self.history.items()}
                raise TimeoutError(f"without an ack: {waiting}; refusals: {last}") from None
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _publish(self, lane: Lane, name: str) -> None:
        number = 0
        while not self._stopping:
            if name.startswith("p"):
                window = range(number, number + WINDOW)
                await asyncio.gather(*(self._until_acked(lane, f"{name}:{i}") for i in window))
                number += WINDOW
            else:
                one = self._once if name.startswith("o") else self._until_acked
                await one(lane, f"{name}:{number}")
                number += 1
            if self._pause_s:
                await asyncio.sleep(self._pause_s)

    async def _until_acked(self, lane: Lane, identity: str) -> None:
        while not await self._once(lane, identity):
            pass

    async def _once(self, lane: Lane, identity: str) -> bool:
        history = self.history[lane]
        body = history.sent.setdefault(identity, payload(identity))
        headers = {"Nats-Msg-Id": identity}
        try:
            ack = await self._context.publish(
                lane.subject, body, timeout=ACK_TIMEOUT_S, headers=headers
            )
        except (NatsError, APIError) as error:
            history.refused[_named(error)] += 1
            await asyncio.sleep(RETRY_S)
            return False
        assert ack.stream == lane.stream
        history.acked[identity] = Acked(ack.seq, time.monotonic())
        return True


def _named(error: Exception) -> str:
    if isinstance(error, APIError):
        return f"{error.code}/{error.err_code} {error.description}"
    return type(error).__name__


def check(
    history: LaneHistory,
    replicas: Sequence[ReplicaLog],
    committed_end: int,
    seen: Mapping[int, Stored] | None = None,
) -> None:
    """Raise Violation unless every replica bears out the history up to ``committed_end``.

    ``seen``: what a consumer read while it all happened; it must have got to the end.
    """
    problems = [problem for log in replicas for problem in _kept(history, log, committed_end)]
    problems += differences(replicas, committed_end)
    if seen is not None:
        problems += list(_shown(_seen(seen, replicas[0], committed_end), "what was read"))
    if problems:
        raise Violation("\n".join(problems))


def _kept(history: LaneHistory, log: ReplicaLog, committed_end: int) -> Iterator[str]:
    records = [record for record in log.records if record.offset < committed_end]
    yield from _shown(holes(log), f"{log.name}: offsets")
    yield from _shown(_lost(history, log), f"{log.name}: acknowledged", len(history.acked))
    yield from _shown(_doubled(records), f"{log.name}: twice")
    yield from _shown(_never_sent(history, records), f"{log.name}: content")
    yield from _shown(_disorder(records), f"{log.name}: order")


def _lost(history: LaneHistory, log: ReplicaLog) -> Iterator[str]:
    """Every acknowledged message is at the sequence of its ack."""
    there = {record.offset: record.identity for record in log.records}
    where = {record.identity: record.offset for record in log.records}
    for identity, (seq, _) in sorted(history.acked.items(), key=lambda item: item[1].seq):
        if seq <= log.start:
            continue  # retention has taken it
        if there.get(seq - 1) != identity:
            found = f"is at {where[identity]}" if identity in where else "is nowhere"
            part = "beyond the end" if seq > log.end else "inside the log"
            yield f"{identity}, acked as offset {seq - 1} ({part}), {found}"


def _doubled(records: Sequence[Stored]) -> Iterator[str]:
    first: dict[str, int] = {}
    for record in records:
        at = first.setdefault(record.identity, record.offset)
        if at != record.offset:
            yield f"{record.identity} is at {at} and at {record.offset}"


def _never_sent(history: LaneHistory, records: Sequence[Stored]) -> Iterator[str]:
    for record in records:
        if history.sent.get(record.identity) != record.value:
            yield f"{record.offset} holds {record.value[:20]!r}, which {record.identity} never was"
        elif record.subject != history.lane.subject:
            yield f"{record.offset} came by {record.subject}, not by {history.lane.subject}"


def _disorder(records: Sequence[Stored]) -> Iterator[str]:
    """Of one that waits for each ack, the messages are there in its order, none left out."""
    last: dict[str, int] = {}
    for record in records:
        name, _, number = record.identity.partition(":")
        if name.startswith("s"):
            expected = last.get(name, -1) + 1
            if int(number) != expected:
                yield f"{record.offset} is {record.identity}, expected {name}:{expected}"
            last[name] = int(number)


def _seen(seen: Mapping[int, Stored], log: ReplicaLog, committed_end: int) -> Iterator[str]:
    """A consumer saw what is there, all of it."""
    there = {record.offset: record for record in log.records}
    for offset in range(log.start, committed_end):
        if offset not in seen:
            yield f"{offset} was never shown"
    for offset, record in seen.items():
        if offset >= committed_end:
            yield f"{offset} was shown, committed is up to {committed_end}"
        elif offset in there and there[offset] != record:
            yield f"{offset} was shown as {record.identity}, is {there[offset].identity}"


def _shown(problems: Iterable[str], what: str, of: int | None = None) -> Iterator[str]:
    """The first few of a kind, and how many there are."""
    found = list(problems)
    yield from (f"{what}: {problem}" for problem in found[:SHOWN])
    if len(found) > SHOWN:
        total = f" of {of}" if of is not None else ""
        yield f"{what}: {len(found)}{total} in all, the last: {found[-1]}"
