"""``__consumer_offsets``: its settings, and one leadership of one of its partitions.

``GroupShard`` is the shell around the partition's coordinator.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any
from uuid import UUID

from streamlog.config import GroupsSection
from streamlog.coordination.effects import Now, TransactionPart
from streamlog.coordination.shard import Shard, clock
from streamlog.errors import InvalidRequest
from streamlog.groups.coordinator import Coordinator
from streamlog.groups.group import Group
from streamlog.groups.records import BARRIER
from streamlog.groups.requests import Effect, MatchTopics
from streamlog.groups.subscribed_topics import NoTopics, Topics, matching
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.stream.internal_stream import state_config
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM, StreamConfig
from streamlog.partition.internal_partition import TransactionalPartition
from streamlog.partition.state import Acknowledgement
from streamlog.record.codec import RecordRun
from streamlog.record.transaction_marker import TransactionMarker


def config_of(settings: GroupsSection, nodes: int) -> StreamConfig:
    """By so many nodes. The stream is made when the first group needs it."""
    return state_config(
        OFFSETS_STREAM,
        nodes,
        partitions=settings.offsets_partitions,
        replicas=settings.offsets_replicas,
    )


class GroupShard(Shard[Coordinator]):
    """Answers for the groups of ``partition``."""

    def __init__(
        self,
        partition: TransactionalPartition,
        leader_epoch: int,
        settings: GroupsSection,
        lease: Lease,
        *,
        now: Callable[[], Now] = clock,
        start: Callable[[Coroutine[Any, Any, None]], object] | None = None,
    ) -> None:
        """``start`` has a task of its own carry out what takes a thread; None: that is done at once, here."""
        super().__init__(
            partition,
            leader_epoch,
            lease,
            barrier=BARRIER,
            pending_writes_max=settings.pending_writes_max,
            now=now,
        )
        self.offsets = partition
        self._settings = settings
        self._start = start
        self._topics: Topics = NoTopics()
        self._matching = asyncio.Lock()
        """One thread at a time looks which topics an expression stands for."""

    def begin(
        self,
        groups: Iterable[Group],
        streams: Mapping[str, UUID],
        *,
        since_ms: int = 0,
        topics: Topics | None = None,
        share_configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """The log has been read; ``streams``: all there are, and their ids; ``since_ms`` and
        ``share_configs``: as of ``Coordinator``; ``topics``: as its groups see the streams.
        """
        coordinator = Coordinator(
            self._settings,
            lambda: str(uuid.uuid4()),
            groups,
            now=self._now(),
            since_ms=since_ms,
            share_configs=share_configs,
        )
        self._begin(coordinator)
        if topics is not None:
            self.topics_changed(topics, None)
        self._perform(coordinator.only_streams(streams))

    async def end_transaction(self, marker: TransactionMarker) -> None:
        """Return once the marker is in the log, and what it says counts. Raises as ``Partition.end_transaction``."""
        await self.offsets.end_transaction(marker)
        self._tell_settled()  # what was written before it
        if self.coordinator is not None and not self.closed:
            self._perform(
                self.coordinator.end_transaction(marker.producer_id, commit=marker.is_commit)
            )

    def topics_changed(self, topics: Topics, names: Iterable[str] | None) -> None:
        """See ``Coordinator.topics_changed``."""
        if self.coordinator is not None:
            self._topics = topics
            self._perform(self.coordinator.topics_changed(topics, names, self._now()))

    def _append_to_transaction(
        self, run: RecordRun, ack: Acknowledgement, part: TransactionPart
    ) -> None:
        self.offsets.append_to_transaction(
            run, part.producer_id, part.producer_epoch, ack, verified=part.verified
        )

    def _carry_out(self, effect: Effect) -> Iterable[Effect]:
        if not isinstance(effect, MatchTopics):
            raise AssertionError(effect)
        if self._start is not None:
            self._start(self._match(effect))
            return ()
        matches = _matches(effect.expressions, self._topics)
        return effect.then(matches, self._topics.version, self._now())

    async def _match(self, wanted: MatchTopics) -> None:
        """In a thread: an expression and a name take a moment each, and there may be many."""
        async with self._matching:
            if self.closed:
                return
            topics = self._topics
            matches = await asyncio.to_thread(_matches, wanted.expressions, topics)
        if not self.closed:
            self._perform(wanted.then(matches, topics.version, self._now()))


def _matches(expressions: Iterable[str], topics: Topics) -> dict[str, frozenset[str] | str]:
    found: dict[str, frozenset[str] | str] = {}
    for expression in expressions:
        try:
            found[expression] = matching(expression, topics.names())
        except InvalidRequest as error:
            found[expression] = str(error)
    return found
