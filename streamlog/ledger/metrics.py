"""What an ordering node counts and times, channel by channel, for Prometheus.

The event loop alone adds to it, per block or per broadcast; a scrape reads it.
"""

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from streamlog.ledger.channel.channel import Channel
from streamlog.ledger.core.block import Block
from streamlog.ledger.core.consenter import SkipReason
from streamlog.ledger.core.cutter import CutReason

PREFIX: Final = "streamlog_ledger_"
BOUNDS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
)  # fmt: skip
"""Up to what a batch time-out may well be."""
AWAITED_MAX: Final = 100_000
"""Broadcasts that are in no block yet and are timed; of more, the oldest are not."""


class Durations:
    """A histogram of seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._sum_s += seconds

    def add_to(self, family: HistogramMetricFamily, channel: str) -> None:
        """As a sample of the channel's."""
        bounds = (*map(str, map(float, BOUNDS_S)), "+Inf")
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        family.add_metric([channel], buckets=buckets, sum_value=self._sum_s)


class ChannelCounts:
    """Of one channel, since the process began."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """By the metric's name."""
        self.cuts: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.broadcasts: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.commit = Durations()
        self.to_block = Durations()
        self.lag_blocks = 0
        self._awaited: deque[tuple[int, float]] = deque(maxlen=AWAITED_MAX)
        """Offset and arrival of what was broadcast here and is in no block yet, in order."""
        self._end_offset = 0
        """After the last record that is in a block."""

    def broadcast(self, offset: int, seconds: float) -> None:
        """It is committed; a block that has it may be there before its acknowledgement is."""
        self.commit.observe(seconds)
        if offset < self._end_offset:
            self.to_block.observe(seconds)
        else:
            self._awaited.append((offset, time.perf_counter() - seconds))

    def appended(self, block: Block) -> None:
        """It is durable."""
        self.counts["blocks"] += 1
        if not block.is_configuration:
            self.counts["records"] += block.header.record_count
            self.counts["record_bytes"] += block.header.data_bytes
        self._end_offset = end_offset = block.metadata.end_offset
        awaited, now = self._awaited, time.perf_counter()
        while awaited and awaited[0][0] < end_offset:
            self.to_block.observe(now - awaited.popleft()[1])


_COUNTERS: Final = {
    "blocks": "Blocks appended to the local ledger: cut here, or pulled from a consenter",
    "records": "Ordinary records in them",
    "record_bytes": "Bytes of their records, as blocks encode them",
    "time_to_cut_posted": "Time-to-cut markers that this node posted",
    "delivered_blocks": "Blocks sent to readers and followers",
    "delivered_bytes": "Bytes of them",
    "repaired_blocks": "Blocks cut off a damaged ledger, to be cut or pulled again",
}
_LABELLED: Final[dict[str, tuple[str, str, Callable[[ChannelCounts], Counter[str]]]]] = {
    "cuts": ("reason", "Blocks cut here, by what ended them", lambda counts: counts.cuts),
    "skipped_records": (
        "reason",
        "Records of the stream that are in no block",
        lambda counts: counts.skipped,
    ),
    "broadcasts": ("outcome", "Records offered to this node", lambda counts: counts.broadcasts),
    "rejected": (
        "reason",
        "Times that a follower refused a peer or what it gave",
        lambda counts: counts.rejected,
    ),
}


class LedgerMetrics(Collector):
    """An ``Observer`` of a node's channels, and of its following; a collector for a registry."""

    def __init__(self, channels: Callable[[], Iterable[Channel]]) -> None:
        """``channels``: that are served at the time of a scrape."""
        self._channels = channels
        self._counts: dict[str, ChannelCounts] = {}

    def of(self, channel: str) -> ChannelCounts:
        """A channel's counts; from 0 on where nothing is counted yet."""
        found = self._counts.get(channel)
        if found is None:
            found = self._counts[channel] = ChannelCounts()
        return found

    # As an observer

    def appended(self, block: Block, reason: CutReason | None) -> None:
        counts = self.of(block.header.channel)
        counts.appended(block)
        if reason is not None:
            counts.cuts[reason.value] += 1

    def skipped(self, channel: str, reason: SkipReason) -> None:
        self.of(channel).skipped[reason.value] += 1

    def posted_time_to_cut(self, channel: str) -> None:
        self.of(channel).counts["time_to_cut_posted"] += 1

    def broadcast(self, channel: str, outcome: str, seconds: float, offset: int | None) -> None:
        counts = self.of(channel)
        counts.broadcasts[outcome] += 1
        if offset is not None:
            counts.broadcast(offset, seconds)

    def delivered(self, channel: str, blocks: int, size_bytes: int) -> None:
        counts = self.of(channel).counts
        counts["delivered_blocks"] += blocks
        counts["delivered_bytes"] += size_bytes

    def repaired(self, channel: str, blocks: int) -> None:
        self.of(channel).counts["repaired_blocks"] += blocks

    def following(self, channel: str, lag_blocks: int) -> None:
        self.of(channel).lag_blocks = lag_blocks

    def refused(self, channel: str, reason: str) -> None:
        self.of(channel).rejected[reason] += 1

    # As a collector

    def collect(self) -> Iterator[Metric]:
        """As the registry wants it."""
        channels = list(self._channels())
        for channel in channels:
            self.of(channel.name)
        yield from _gauges(channels, self._counts)
        for name, text in _COUNTERS.items():
            family = CounterMetricFamily(PREFIX + name, text, labels=["channel"])
            for label, counts in self._counts.items():
                family.add_metric([label], counts.counts[name])
            yield family
        for name, (what, text, of) in _LABELLED.items():
            family = CounterMetricFamily(PREFIX + name, text, labels=["channel", what])
            for label, counts in self._counts.items():
                for value, count in of(counts).items():
                    family.add_metric([label, value], count)
            yield family
        yield from self._histograms()

    def _histograms(self) -> Iterator[Metric]:
        commit = HistogramMetricFamily(
            PREFIX + "commit_seconds",
            "From a broadcast's arrival at this node until it is committed in the stream",
            labels=["channel"],
        )
        to_block = HistogramMetricFamily(
            PREFIX + "broadcast_to_block_seconds",
            "From a broadcast's arrival at this node until it is in a block of its ledger, on disk",
            labels=["channel"],
        )
        for channel, counts in self._counts.items():
            counts.commit.add_to(commit, channel)
            counts.to_block.add_to(to_block, channel)
        yield commit
        yield to_block


_GAUGES: Final = {
    "height": "Blocks in the local ledger, all on disk",
    "consenter": "1 where this node cuts blocks, 0 where it follows",
    "halted": "1 where the channel cannot go on",
    "pending_records": "Records that are in no block yet",
    "stream_lag_records": "Offsets of the stream that are committed and not consumed yet",
    "follower_lag_blocks": "Blocks that consenters have and this follower has not",
}


def _gauges(channels: list[Channel], counts: dict[str, ChannelCounts]) -> Iterator[Metric]:
    families = {
        name: GaugeMetricFamily(PREFIX + name, text, labels=["channel"])
        for name, text in _GAUGES.items()
    }
    for channel in channels:
        info = channel.info()
        consumed, watermark = info["next_offset"] or 0, info["high_watermark"] or 0
        is_consenter = info["role"] == "consenter"
        values = {
            "height": info["height"],
            "consenter": int(is_consenter),
            "halted": int(channel.is_halted),
            "pending_records": info["pending"],
            "stream_lag_records": max(0, watermark - consumed) if is_consenter else 0,
            "follower_lag_blocks": 0 if is_consenter else counts[channel.name].lag_blocks,
        }
        for name, value in values.items():
            families[name].add_metric([channel.name], value)
    yield from families.values()
