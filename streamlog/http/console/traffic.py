"""Records and bytes a second, from how far partitions have moved between two looks. Pure.

A look is told of the partitions that have moved since the last one, and of no others: what it costs
grows with what is written, not with what is kept.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from streamlog.http.console.cluster_snapshot import LocalReplicaState
from streamlog.model import TopicPartition

LOOKS: Final = 5
"""A rate is taken over the growth between so many looks, so that it does not flicker."""
HISTORY: Final = 300
"""Looks of which the totals are kept, for charts."""
AWAY_MAX: Final = 10_000
"""Partitions elsewhere whose ends are remembered."""


class TrafficSample(NamedTuple):
    """All partitions of this node together, between two looks."""

    time_ms: int
    records_s: float
    bytes_s: float


class StreamSum(NamedTuple):
    """What this node keeps of a stream."""

    records: int
    size_bytes: int


class _Growth:
    """Between two looks."""

    __slots__ = ("partitions", "period_ms", "records", "size_bytes", "streams")

    def __init__(self, period_ms: int) -> None:
        self.period_ms = period_ms
        self.records = self.size_bytes = 0
        self.partitions: dict[TopicPartition, int] = {}
        self.streams: dict[str, int] = {}

    def add(self, tp: TopicPartition, records: int) -> None:
        self.partitions[tp] = records
        self.streams[tp.stream] = self.streams.get(tp.stream, 0) + records


class Traffic:
    """``begin`` when a client begins to watch, ``look`` once a second from then on."""

    GAP_MS: Final = 5_000
    """After a longer pause it has to begin again."""

    def __init__(self) -> None:
        self.history: deque[TrafficSample] = deque(maxlen=HISTORY)
        self._known: dict[TopicPartition, LocalReplicaState] = {}
        self._away: dict[TopicPartition, int] = {}
        self._window: deque[_Growth] = deque()
        self._last_ms: int | None = None
        self._sums: dict[str, StreamSum] = {}

    def is_behind(self, now_ms: int) -> bool:
        """It has not begun, or not looked for too long."""
        return self._last_ms is None or not 0 <= now_ms - self._last_ms <= self.GAP_MS

    def begin(self, now_ms: int, known: dict[TopicPartition, LocalReplicaState]) -> None:
        """``known``: of every partition here. Rates are known two looks later."""
        self._known = known
        self._away.clear()
        self._window.clear()
        self._sums.clear()
        self.history.clear()
        self._last_ms = now_ms

    def look(
        self,
        now_ms: int,
        moved: Iterable[tuple[TopicPartition, LocalReplicaState | None]],
        away: Mapping[TopicPartition, int] | None = None,
    ) -> set[str]:
        """``moved``: since the last look; None for what is here no more. ``away``: the ends of
        others that are shown. Returns the streams of which a rate or a sum is another one now.
        """
        assert self._last_ms is not None, "it has begun"
        growth = _Growth(max(1, now_ms - self._last_ms))
        self._last_ms = now_ms
        dirty: set[str] = set()
        for tp, held in moved:
            dirty.add(tp.stream)
            before = self._known.get(tp)
            if held is None:
                self._known.pop(tp, None)
                self._sums.pop(tp.stream, None)
                continue
            self._known[tp] = held
            if before is None:  # it came after the beginning
                self._sums.pop(tp.stream, None)
                before = LocalReplicaState(held.log_start_offset, held.log_start_offset, 0)
            else:
                self._move_sum(tp.stream, before, held)
            records = held.high_watermark - before.high_watermark
            if records > 0:  # a log that was cut has no rate
                growth.add(tp, records)
                growth.records += records
                growth.size_bytes += max(0, held.size_bytes - before.size_bytes)
        for tp, end in (away or {}).items():
            if tp in self._away and end > self._away[tp]:
                growth.add(tp, end - self._away[tp])
        if away or self._away:
            self._away = {**self._away, **(away or {})} if len(self._away) < AWAY_MAX else {}
        self._window.append(growth)
        dirty.update(growth.streams)
        while len(self._window) > LOOKS:
            dirty.update(self._window.popleft().streams)
        seconds = growth.period_ms / 1000
        sample = TrafficSample(
            now_ms, round(growth.records / seconds, 1), round(growth.size_bytes / seconds, 1)
        )
        self.history.append(sample)
        return dirty

    def of(self, tp: TopicPartition) -> float | None:
        """Records a second; None before there are two looks."""
        if not self._window:
            return None
        return self._rate(sum(it.partitions.get(tp, 0) for it in self._window))

    def of_stream(self, name: str) -> float | None:
        if not self._window:
            return None
        return self._rate(sum(it.streams.get(name, 0) for it in self._window))

    @property
    def last(self) -> TrafficSample | None:
        """Of all partitions here, between the last two looks."""
        return self.history[-1] if self.history else None

    def sum_of(self, name: str) -> StreamSum | None:
        """None: it has to be added up, and ``keep_sum`` told."""
        return self._sums.get(name)

    def keep_sum(self, name: str, found: StreamSum) -> None:
        """Later looks move it along."""
        self._sums[name] = found

    def forget_sum(self, name: str) -> None:
        """Other partitions of the stream may be here now."""
        self._sums.pop(name, None)

    def forget_sums(self) -> None:
        self._sums.clear()

    def held(self, tp: TopicPartition) -> LocalReplicaState | None:
        """As of the last look."""
        return self._known.get(tp)

    def _move_sum(self, name: str, before: LocalReplicaState, now: LocalReplicaState) -> None:
        known = self._sums.get(name)
        if known is not None:
            self._sums[name] = StreamSum(
                known.records + now.records - before.records,
                known.size_bytes + now.size_bytes - before.size_bytes,
            )

    def _rate(self, grown: int) -> float:
        return round(grown * 1000 / sum(it.period_ms for it in self._window), 1)
