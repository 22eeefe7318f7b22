"""What a consumer without a session fetches: it lives for one request, and all of it is told."""

from collections.abc import Callable, Iterable, Sequence

from streamlog.errors import BrokenInvariant
from streamlog.kafka.fetch.fetch_session import STEP, Steps
from streamlog.kafka.fetch.partition_fetch import FetchCaller, Key, PartitionFetch
from streamlog.model import TopicPartition
from streamlog.wire import fetch as wire


class SessionlessFetch:
    """Used as a ``FetchSession`` is, with nothing of what that keeps for the next request.

    Not for replicas: what they have while they wait is told to the partition.
    """

    __slots__ = ("_by_id", "_caller", "_due", "_fetches", "_wake", "busy", "news")

    def __init__(self, caller: FetchCaller, *, by_id: bool) -> None:
        self.news: Sequence[PartitionFetch] = ()
        self.busy = False
        self._caller = caller
        self._by_id = by_id
        self._fetches: dict[Key, PartitionFetch] = {}
        self._due: list[PartitionFetch] = []
        self._wake: Callable[[], None] | None = None

    def begin(self, request: wire.FetchRequest, _now: Callable[[], float]) -> Steps:
        done = 0
        for topic in request.topics:
            for wanted in topic.partitions:
                done += 1
                if done % STEP == 0:
                    yield
                key: Key
                if self._by_id:
                    key = wire.TopicIdPartition(topic.topic_id, wanted.partition)
                else:
                    key = TopicPartition(topic.name, wanted.partition)
                self._fetches[key] = PartitionFetch(key, wanted, self._caller)
        self._due = list(self._fetches.values())

    def take_due(self) -> Iterable[PartitionFetch]:
        due, self._due = self._due, []
        return due

    def wait(self, wake: Callable[[], None]) -> Steps:
        """``wake`` is called, from now on, when something is due."""
        self._wake = wake
        for done, fetch in enumerate(self._fetches.values()):
            if done % STEP == STEP - 1:
                yield
            self.watch(fetch)

    def watch(self, fetch: PartitionFetch) -> None:
        """After a look at it while the request waits."""
        fetch.watch(self._changed, _not_told)

    def end(self, *, everything: bool) -> list[PartitionFetch]:
        """What is to be told."""
        if not everything:
            raise BrokenInvariant("without a session every partition is told")
        return list(self._fetches.values())

    def drop(self, told: Iterable[PartitionFetch]) -> Steps:
        """After ``end``: ``told`` is on its way, and whoever sends it closes the records."""
        for done, fetch in enumerate(told):
            if done % STEP == STEP - 1:
                yield
            fetch.records = None
            if self._wake is not None:
                fetch.unwatch(0)

    def fail(self) -> None:
        """Instead of ``end``: nothing is told."""
        for fetch in self._fetches.values():
            fetch.close()
            fetch.unwatch(0)

    def _changed(self, fetch: PartitionFetch) -> None:
        fetch.unwatch(0)
        self._due.append(fetch)
        if self._wake is not None:
            self._wake()


def _not_told(_: PartitionFetch) -> None:
    """Consumers do not hear of what is committed but by what they may read."""
