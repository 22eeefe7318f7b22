"""The console as a whole: what it is made of, and what of it runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import resources
from typing import Final

from aiohttp import web

from streamlog.authz.permissions import Permissions
from streamlog.client.cluster import Cluster
from streamlog.client.security import NO_SECURITY, Security
from streamlog.clock import wall_ms
from streamlog.condition import FAULT
from streamlog.config import HttpSection
from streamlog.control.service import ControlService
from streamlog.errors import StreamlogError
from streamlog.fairness import cooperatively
from streamlog.http.console.cluster_snapshot import ClusterSnapshot, LocalReplicaState
from streamlog.http.console.event_log import EventLog
from streamlog.http.console.live import Live, WatchedPartitions, everyone_sees_all
from streamlog.http.console.messages.browse import Browse
from streamlog.http.console.messages.decode import Schemas
from streamlog.http.console.messages.partition_source import (
    LeaderSource,
    LocalSource,
    PartitionSource,
)
from streamlog.http.console.messages.tail import MayRead, Tail, everyone
from streamlog.http.console.other_nodes import AllTransactions, NodeProbe, RemoteGroups
from streamlog.http.console.principal_views import PrincipalViews
from streamlog.http.console.query import Query
from streamlog.http.console.sse import MayStay, anybody
from streamlog.http.console.traffic import Traffic
from streamlog.http.console.view import View
from streamlog.http.gauges.log_ends import LogEnds
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.partition.state import PartitionStatistics

FILES: Final = {
    "/": ("index.html", "text/html"),
    "/static/console.css": ("console.css", "text/css"),
    "/static/console.js": ("console.js", "text/javascript"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}


class Assets:
    """Read once, when first asked for."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(path, partial(self._file, name, content_type))
            for path, (name, content_type) in FILES.items()
        ]

    async def _file(self, name: str, content_type: str, _: web.Request) -> web.Response:
        body = self._bodies.get(name)
        if body is None:
            folder = resources.files("streamlog.http.console") / "static"
            body = self._bodies[name] = (folder / name).read_bytes()
        return web.Response(body=body, content_type=content_type, charset="utf-8")


logger = logging.getLogger(__name__)

ENDS_PERIOD_S: Final = 1.0
TIMEOUT_MS: Final = 2_000
PAUSE_S: Final = 5.0
"""Before what failed is begun again."""


class Console:
    """``run`` as a task, ``apply`` at each change of the image; ``routes`` for the site."""

    def __init__(
        self,
        *,
        settings: HttpSection,
        moment: Callable[["Console"], ClusterSnapshot],
        survey: Callable[[], Awaitable[None]],
        image: Callable[[], MetadataImage],
        partitions: ReplicaManager,
        may_read: MayRead = everyone,
        may_stay: MayStay = anybody,
        permissions: Callable[[web.Request], Permissions | None] = everyone_sees_all,
        control: ControlService,
        security: Security = NO_SECURITY,
        has_controller: Callable[[], bool] = lambda: True,
    ) -> None:
        """``moment`` is asked at each look; ``groups`` of this page are to be in it, and what
        ``silence`` knows. ``survey`` is awaited before, by which it may look at every partition in
        turns. ``may_read``: whether who asks may see what is in a stream; ``may_stay``: whether who
        watches would still be let in; ``permissions``: by which who asks may know of streams.
        """
        self._partitions = partitions
        self._image = image
        self._traffic = Traffic()
        self._interest = WatchedPartitions()
        chronicle = EventLog()
        self._security = security
        self.groups = RemoteGroups(
            control,
            image=image,
            is_watched=self._is_watched,
            partitions_max=settings.metrics_group_partitions_max,
        )
        self.transactions = AllTransactions(control)
        self.silence = NodeProbe(control, image=image, has_controller=has_controller)
        self._ends = LogEnds(
            wanted=self._wanted_now,
            local=partitions.partition,
            image=image,
            period_s=ENDS_PERIOD_S,
            security=security,
        )
        self._live = Live(
            moment=lambda: moment(self),
            held=self._all_held,
            moves=self._moved,
            away=self._away,
            survey=survey,
            views=PrincipalViews(lambda sees: View(self, self._traffic, chronicle, sees)),
            traffic=self._traffic,
            chronicle=chronicle,
            interest=self._interest,
            clients_max=settings.status_clients_max,
            may_stay=may_stay,
            permissions=permissions,
            fetch=self._fetch,
        )
        schemas = Schemas(settings.schemas_dir)
        self._tail = Tail(
            open_partition=self._open,
            schemas=schemas,
            clients_max=settings.tail_clients_max,
            refused=lambda: moment(self).tail_refused,
            may_read=may_read,
            may_stay=may_stay,
        )
        self._browse = Browse(
            open_partition=self._open,
            partitions_of=lambda name: len(image().stream(name).partitions),
            refused=lambda: moment(self).tail_refused,
            schemas=schemas,
            may_read=may_read,
        )
        self._assets = Assets()

    def routes(self) -> list[web.RouteDef]:
        return [
            *self._assets.routes(),
            *self._live.routes(),
            *self._tail.routes(),
            *self._browse.routes(),
        ]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for service in (
                self._live.run,
                self._ends.run,
                self.groups.run,
                self.silence.run,
            ):
                group.create_task(_steadily(service))

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        try:
            self._live.changed(old, new)
        except Exception:
            logger.exception(FAULT.logged_as("the console was not told of a change"))

    def close(self) -> None:
        """Ends all streams of events, before the site stops."""
        self._live.close()
        self._tail.close()

    async def _fetch(self, query: Query) -> None:
        if query.show == "transactions":
            await self.transactions.look()

    # What the view asks of this node

    def statistics(self, tp: TopicPartition) -> PartitionStatistics | None:
        try:
            return self._partitions.partition(tp).statistics()
        except StreamlogError:
            return None

    def kept(self, tp: TopicPartition) -> LocalReplicaState | None:
        try:
            return _held(self._partitions.partition(tp))
        except StreamlogError:
            return None

    def end(self, tp: TopicPartition) -> int | None:
        return self._ends.end(tp)

    async def _all_held(self) -> dict[TopicPartition, LocalReplicaState]:
        return {it.tp: _held(it) async for it in cooperatively(self._partitions.partitions())}

    def _moved(self, go_on: bool) -> list[tuple[TopicPartition, LocalReplicaState | None]]:
        moved = self._partitions.moved(go_on=go_on)
        return [(it.tp, None if it.closed else _held(it)) for it in moved]

    async def _away(self) -> Mapping[TopicPartition, int]:
        """Of the rows looked at."""
        shown = self._interest.partitions(wall_ms())
        return await self._ends.known(tp for tp in shown if self.kept(tp) is None)

    def _wanted(self) -> set[TopicPartition]:
        """Ends that are shown: of the rows looked at, and of what groups elsewhere read."""
        if not self._is_watched():
            return set()
        committed = {tp for group in self.groups.groups for tp in group.committed}
        return self._interest.partitions(wall_ms()) | committed

    async def _wanted_now(self) -> set[TopicPartition]:
        return self._wanted()

    def _is_watched(self) -> bool:
        return self._live.is_watched(wall_ms())

    def _open(self, tp: TopicPartition) -> PartitionSource:
        """Raises StreamNotFound, PartitionNotFound."""
        image = self._image()
        image.stream(tp.stream).partition(tp.partition)
        try:
            partition = self._partitions.partition(tp)
            if partition.may_serve_reads and partition.high_watermark_known:
                return LocalSource(partition)
        except StreamlogError:
            pass  # its leader may serve it
        servers = [(it.host, it.port) for it in image.nodes.values() if not it.fenced]
        return LeaderSource(Cluster(servers, timeout_ms=TIMEOUT_MS, security=self._security), tp)


def _held(it: Partition) -> LocalReplicaState:
    return LocalReplicaState(it.log_start_offset, it.high_watermark, it.size_bytes)


async def _steadily(service: Callable[[], Awaitable[None]]) -> None:
    """A page is no reason for a node to end: what fails is begun again, and said."""
    while True:
        try:
            await service()
        except Exception:
            logger.exception(FAULT.logged_as("a part of the console failed"))
        await asyncio.sleep(PAUSE_S)
