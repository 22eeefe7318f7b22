"""How far a table is behind its stream, for eyes and for Prometheus."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Final

from streamlog.arrow.location import Bounds
from streamlog.lake.job import JobObserver, TableCommit
from streamlog.lake.position import TablePosition

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from streamlog.lake.maintain import Done

LOOKS_MAX: Final = 86_400
"""Of the log, that are remembered until the table has what they saw; more make the age a lower bound."""


class Lag(JobObserver):
    """Told by the job of each look at the log, and of each commit. Thread-safe.

    The age is that of the first look which saw a record that the table does not have: exact to the time between two
    looks, without a record being read for it.
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._lock = Lock()
        self._table: dict[int, int] = {}
        self._log: dict[int, Bounds] = {}
        self._looks: deque[tuple[float, dict[int, int]]] = deque(maxlen=LOOKS_MAX)
        self.row_count = 0
        self.dead_count = 0
        self.byte_count = 0
        self.commit_count = 0
        self.commit_seconds = 0.0
        self.maintenance_count = 0
        self.maintenance_failure_count = 0
        self.last_commit_s = 0.0
        """Since 1970."""

    def looked(self, bounds: Mapping[int, Bounds]) -> None:
        with self._lock:
            self._log = dict(bounds)
            ends = {number: it.high_watermark for number, it in bounds.items()}
            if not self._looks or self._looks[-1][1] != ends:
                self._looks.append((self._monotonic(), ends))
            self._forget()

    def opened(self, position: TablePosition) -> None:
        with self._lock:
            self._table = dict(position.ends)
            self._forget()

    def committed(self, it: TableCommit) -> None:
        with self._lock:
            self._table = dict(it.position.ends)
            self.row_count += it.row_count
            self.dead_count += it.dead_count
            self.byte_count += it.byte_count
            self.commit_count += 1
            self.commit_seconds += it.seconds
            self.last_commit_s = self._wall()
            self._forget()

    def maintained(self, done: "Done | None") -> None:
        """A table; None: it failed."""
        with self._lock:
            if done is None:
                self.maintenance_failure_count += 1
            else:
                self.maintenance_count += 1

    @property
    def log_starts(self) -> dict[int, int]:
        """At the last look."""
        with self._lock:
            return {number: it.log_start for number, it in self._log.items()}

    @property
    def records_behind(self) -> int:
        with self._lock:
            return sum(
                max(0, it.high_watermark - self._table.get(number, it.log_start))
                for number, it in self._log.items()
            )

    @property
    def seconds_behind(self) -> float:
        with self._lock:
            return self._monotonic() - self._looks[0][0] if self._looks else 0.0

    def _forget(self) -> None:
        """Looks that saw nothing which is not in the table."""
        while self._looks and all(
            end <= self._table.get(number, self._start(number))
            for number, end in self._looks[0][1].items()
        ):
            self._looks.popleft()

    def _start(self, number: int) -> int:
        found = self._log.get(number)
        return 0 if found is None else found.log_start


class LagCollector:
    """Of one job, for a registry of Prometheus."""

    def __init__(self, lag: Lag, stream: str, table: str) -> None:
        self._lag = lag
        self._labels = (stream, table)

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        lag = self._lag
        names = ("stream", "table")
        for name, text, value in (
            (
                "records_behind",
                "Records of the log that the table does not have.",
                lag.records_behind,
            ),
            ("seconds_behind", "Since when the table lacks a record.", lag.seconds_behind),
            ("last_commit_timestamp_seconds", "When the job last committed.", lag.last_commit_s),
        ):
            gauge = GaugeMetricFamily(f"streamlog_lake_{name}", text, labels=names)
            gauge.add_metric(self._labels, value)
            yield gauge
        for name, text, count in (
            ("rows", "Rows that were committed to the table.", lag.row_count),
            ("dead_letters", "Records that do not fit the schema.", lag.dead_count),
            ("bytes", "Of rows, in Arrow's memory.", lag.byte_count),
            ("commits", "Snapshots that the job has committed.", lag.commit_count),
            ("commit_seconds", "That commits took.", lag.commit_seconds),
            ("maintenances", "Upkeeps of a table that were carried out.", lag.maintenance_count),
            (
                "maintenance_failures",
                "Upkeeps of a table that failed; the log says why.",
                lag.maintenance_failure_count,
            ),
        ):
            counter = CounterMetricFamily(f"streamlog_lake_{name}", text, labels=names)
            counter.add_metric(self._labels, count)
            yield counter


def serve_metrics(collector: LagCollector, port: int, address: str) -> Callable[[], None]:
    """At ``/metrics``; what is returned stops it. Raises OSError."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(collector)
    server, thread = start_http_server(port, address, registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
