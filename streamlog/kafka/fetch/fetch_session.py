"""What one caller fetches, from one request to the next (KIP-227).

A request names only what has changed since the one before it, and so does its answer. What is
asked for and has nothing to tell *rests*: it is watched, and costs nothing until it is told of. A
fetch of the session counts as a fetch of all that rests, too: whoever asks has all there is of it.

Without a session, the same lives for one request.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Final

from streamlog.kafka.fetch.partition_fetch import FetchCaller, Key, PartitionFetch
from streamlog.kafka.fetch.session_cache import Owner
from streamlog.model import NodeId, TopicPartition
from streamlog.wire import fetch as wire

FIRST_EPOCH: Final = wire.next_session_epoch(wire.NEW_SESSION)
STEP: Final = 100
"""Partitions between two steps."""

Steps = Generator[None, None, None]
"""What is done of a request with many partitions: others may have their turn between two steps."""


class FetchSession:
    """Used by one request at a time: ``begin``, then looks at what is ``due``, then ``end``."""

    def __init__(self, caller: FetchCaller, *, by_id: bool = False) -> None:
        self.caller = caller
        self.by_id = by_id
        """Topics have ids, not names."""
        self.epoch = FIRST_EPOCH
        """Of the request that is to come."""
        self.busy = False
        self.due: dict[PartitionFetch, None] = {}
        """To be looked at: asked for anew, or told of since the last look; first come first."""
        self.news: dict[PartitionFetch, None] = {}
        """A replica may have to hear what is committed there, or does not rest any more."""
        self.closed = False
        self._fetches: dict[Key, PartitionFetch] = {}
        self._later: dict[PartitionFetch, None] = {}
        """To be looked at with the next request, whatever happens."""
        self._touched: dict[PartitionFetch, None] = {}
        """By the request that is being answered."""
        self._asked_s = 0.0
        """When the last request came: all that rested had nothing to tell by then."""
        self._now: Callable[[], float] | None = None
        self._wake: Callable[[], None] | None = None

    @property
    def size(self) -> int:
        return len(self._fetches)

    @property
    def replica_id(self) -> NodeId:
        return self.caller.replica_id

    @property
    def owner(self) -> Owner:
        return self.caller.owner

    # One request

    def begin(self, request: wire.FetchRequest, now: Callable[[], float]) -> Steps:
        """``now``: a clock that never goes back, in seconds. The session is busy from the first
        step on, and what changes in between is due.
        """
        self.busy = True
        self._now = now
        self._touched = {}
        for done, key in enumerate(request.forgotten):
            if done % STEP == STEP - 1:
                yield
            self._forget(key)
        if self._later:
            self.due.update(self._later)
            self._later = {}
        done = 0
        for topic in request.topics:
            for wanted in topic.partitions:
                done += 1
                if done % STEP == 0:
                    yield
                if self.by_id:
                    self._want(wire.TopicIdPartition(topic.topic_id, wanted.partition), wanted)
                else:
                    self._want(TopicPartition(topic.name, wanted.partition), wanted)
        self._asked_s = now()

    def take_due(self) -> Iterable[PartitionFetch]:
        due, self.due = self.due, {}
        self._touched.update(due)
        return due

    def wait(self, wake: Callable[[], None]) -> Steps:
        """``wake`` is called, from now until ``end``, when something is due or there are news."""
        self._wake = wake
        for done, fetch in enumerate(self._touched):
            if done % STEP == STEP - 1:
                yield
            fetch.watch(self._changed, self._committed)

    def watch(self, fetch: PartitionFetch) -> None:
        """After a look at it while the request waits."""
        if not self.closed and fetch.key in self._fetches:
            fetch.watch(self._changed, self._committed)

    def end(self, *, everything: bool) -> list[PartitionFetch]:
        """What is to be told; ``everything``: of each partition. The caller gets it for sure, or
        the session is over.
        """
        self.busy, self._wake = False, None
        if self.news:
            self._touched.update(self.news)
            self.news = {}
        if everything:
            return list(self._fetches.values())
        return [it for it in self._touched if it.has_changed]

    def keep(self, told: Iterable[PartitionFetch]) -> Steps:
        """After ``end``: ``told`` is on its way. What has nothing to tell rests from now on."""
        restless: dict[PartitionFetch, None] = {}
        for done, fetch in enumerate(self._touched):
            if done % STEP == STEP - 1:
                yield
            if not fetch.may_rest:
                restless[fetch] = None
        sent = {it: None for it in told if it in restless and it.records is not None}
        self._later = {it: None for it in restless if it not in sent} | sent  # others come first
        for done, fetch in enumerate(told):
            if done % STEP == STEP - 1:
                yield
            fetch.remember()
        for done, fetch in enumerate({**self._touched, **dict.fromkeys(told)}):
            if done % STEP == STEP - 1:
                yield
            if fetch not in restless:
                self.watch(fetch)
        self._touched = {}

    def drop(self, told: Iterable[PartitionFetch]) -> Steps:
        """After ``end``, too, but nothing is kept."""
        for done, fetch in enumerate(told):
            if done % STEP == STEP - 1:
                yield
            fetch.records = None  # whoever sends the answer closes them
        self.close()

    def fail(self) -> None:
        """Instead of ``end``: nothing is told."""
        for fetch in self._touched:
            fetch.close()
        self.close()

    def close(self) -> None:
        """What it has been asked last may still be answered."""
        self.closed = True
        for fetch in self._fetches.values():
            if fetch.is_watched:
                self._rouse(fetch)
        self._fetches = {}
        self.due, self.news, self._later = {}, {}, {}

    def _want(self, key: Key, wanted: wire.FetchPartition) -> None:
        fetch = self._fetches.get(key)
        if fetch is None:
            fetch = self._fetches[key] = PartitionFetch(key, wanted, self.caller)
        else:
            self._rouse(fetch)
            fetch.want(wanted)
            self.due.pop(fetch, None)
        self.due[fetch] = None

    def _forget(self, key: Key) -> None:
        fetch = self._fetches.pop(key, None)
        if fetch is not None:
            self._rouse(fetch)
            for some in (self.due, self._later, self.news):
                some.pop(fetch, None)

    # What happens in the meantime

    def _changed(self, fetch: PartitionFetch) -> None:
        self._rouse(fetch)
        self.due[fetch] = None
        if self._wake is not None:
            self._wake()

    def _committed(self, fetch: PartitionFetch) -> None:
        self.news[fetch] = None
        if self._wake is not None:
            self._wake()

    def _rouse(self, fetch: PartitionFetch) -> None:
        """It rests no more. Until the last request came the caller had all of it."""
        assert self._now is not None
        fetch.unwatch(rested_ms=int((self._now() - self._asked_s) * 1000))
