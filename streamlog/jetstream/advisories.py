"""JetStream's advisories of changes of the metadata and of requests (pure), and their publisher."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from streamlog.condition import Condition
from streamlog.ingest.pub_ack_format import PREFIX, TYPES, advisory
from streamlog.jetstream.verbs.stream_info import node_name, replicas_json
from streamlog.metadata.image.metadata_image import MetadataImage, StreamChange, StreamImage
from streamlog.metadata.stream.stream_config import is_internal, is_jetstream_name
from streamlog.model import NO_LEADER

Advisory = tuple[str, bytes]
"""A subject, and what is said there."""

METRICS_PREFIX: Final = "$JS.EVENT.METRIC"
METRIC_TYPES: Final = "io.nats.jetstream.metric.v1"
AUDIT_SUBJECT: Final = f"{PREFIX}.API"
_CHANGES: Final = (
    "STREAM.CREATE.", "STREAM.UPDATE.", "STREAM.DELETE.", "STREAM.PURGE.", "STREAM.RESTORE.", "STREAM.MSG.DELETE.",
    "STREAM.LEADER.STEPDOWN.", "STREAM.PEER.REMOVE.", "META.LEADER.STEPDOWN",
)  # fmt: skip


class Advisories:
    """In the name of one node, under the domain."""

    def __init__(
        self, *, node: str, domain: str, now_ms: Callable[[], int], new_id: Callable[[], str]
    ) -> None:
        self._node = node
        self._domain = domain
        self._now_ms = now_ms
        self._new_id = new_id

    def of_change(self, change: StreamChange, image: MetadataImage) -> Iterator[Advisory]:
        """Of one stream's; no client is told of the nodes' own, nor of those that JetStream has no names for."""
        old, new = change
        known = new or old
        assert known is not None, "a change has one side at least"
        if is_internal(known.name) or not is_jetstream_name(known.name):
            return
        if new is None:
            yield self._action(known.name, "DELETED", "delete")
            return
        if old is None:
            yield self._action(new.name, "CREATED", "create")
        elif old.config != new.config:
            yield self._action(new.name, "UPDATED", "modify")
        for number in range(len(new.partitions)):
            yield from self._of_partition(old, new, number, image)

    def of_request(self, verb: str, subject: str, request: bytes, reply: bytes) -> Advisory | None:
        """One that was to change something; who asked is not known to a client of NATS."""
        if not verb.startswith(_CHANGES):
            return None
        fields: dict[str, Any] = {
            "server": self._node,
            "client": {},
            "subject": subject,
            "request": request.decode(errors="replace") or None,
            "response": reply.decode(),
        }
        return AUDIT_SUBJECT, self._said("api_audit", fields)

    def of_consumer(self, subject: str, kind: str, fields: dict[str, Any]) -> Advisory:
        """``subject``: after that of all advisories."""
        return f"{PREFIX}.{subject}", self._said(kind, fields)

    def of_measured_consumer(self, subject: str, kind: str, fields: dict[str, Any]) -> Advisory:
        """``subject``: after that of all metrics."""
        return f"{METRICS_PREFIX}.{subject}", self._said(kind, fields, types=METRIC_TYPES)

    def _action(self, stream: str, word: str, action: str) -> Advisory:
        said = self._said("stream_action", {"stream": stream, "action": action})
        return f"{PREFIX}.STREAM.{word}.{stream}", said

    def _of_partition(
        self, old: StreamImage | None, new: StreamImage, number: int, image: MetadataImage
    ) -> Iterator[Advisory]:
        """Who leads it now; that too few replicas are in sync now."""
        after = new.partitions[number]
        before = old.partitions[number] if old and number < len(old.partitions) else None
        fields: dict[str, Any] = {
            "account": "",
            "stream": new.name,
            "partition": number or None,
            "replicas": replicas_json(after, {}, image, but=None),
        }
        led = before is not None and (before.leader, before.leader_epoch) == (
            after.leader,
            after.leader_epoch,
        )
        if not led and after.leader != NO_LEADER:
            said = self._said(
                "stream_leader_elected", {**fields, "leader": node_name(after.leader)}
            )
            yield f"{PREFIX}.STREAM.LEADER_ELECTED.{new.name}", said
        was_short = before is not None and len(before.isr) < new.config.min_isr
        if not was_short and len(after.isr) < new.config.min_isr:
            said = self._said("stream_quorum_lost", fields)
            yield f"{PREFIX}.STREAM.QUORUM_LOST.{new.name}", said

    def _said(self, kind: str, fields: dict[str, Any], *, types: str = TYPES) -> bytes:
        return advisory(
            kind,
            fields,
            event_id=self._new_id(),
            now_ms=self._now_ms(),
            domain=self._domain,
            types=types,
        )


logger = logging.getLogger(__name__)

ADVISORIES_DROPPED: Final = Condition(
    "SL-0506",
    "advisories were dropped",
    "NATS was away, or slow: see its log",
    meaning="Advisories could not be published in time.",
)

WAITING_MAX: Final = 1_000
"""The oldest are dropped: they are for those who watch, and nothing depends on them."""


class AdvisoryPublisher:
    """The controller's node tells of what is decided: ``apply`` at each change, ``run`` as a
    task. At most once: what changes while there is no NATS, or between two controllers, is not
    told, and changes that a node takes together are told as one.
    """

    def __init__(
        self,
        advisories: Advisories,
        publish: Callable[[str, bytes], Awaitable[object]],
        *,
        is_controller: Callable[[], bool],
    ) -> None:
        self._advisories = advisories
        self._publish = publish
        self._is_controller = is_controller
        self._waiting: deque[Advisory] = deque(maxlen=WAITING_MAX)
        self._added = asyncio.Event()
        self.dropped = 0

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        if not self._is_controller():
            return
        for change in new.changes(old):
            for each in self._advisories.of_change(change, new):
                self.tell(each)

    def tell(self, advisory: Advisory) -> None:
        """Soon."""
        if len(self._waiting) == WAITING_MAX:
            self.dropped += 1
        self._waiting.append(advisory)
        self._added.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._waiting:
                await self._publish(*self._waiting.popleft())
            if self.dropped:
                logger.warning(ADVISORIES_DROPPED, extra={"count": self.dropped})
                self.dropped = 0
