"""Why a node is not ready, and what keeps it from its work: each reason in words, for ``/readyz``, for the
console, and for the controller, which leaves unfit nodes without leaderships.

``metadata.nodes.node_condition`` judges the facts; here they are gathered.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

from streamlog.app.loop_lag import LoopLag
from streamlog.http.endpoints import Readiness
from streamlog.ingest.service import IngestService
from streamlog.jetstream.api import ManagementApi
from streamlog.metadata.nodes.node_condition import (
    DAMAGED,
    DISABLING,
    DISK,
    NATS,
    Facts,
    Trouble,
    disabling,
    endured,
    judge,
)
from streamlog.metadata.service import MetadataService
from streamlog.model import NodeId
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.tls.certificates import HTTP, KAFKA, Certificates

NATS_PATIENCE_S: Final = 3.0
"""After so long without NATS the other nodes are told."""


class NodeReadiness(Readiness):
    """The conditions are asked again at each request. Of a node that starts, more is asked: a rolling restart
    has to wait until it has caught up.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        metadata: MetadataService,
        partitions: ReplicaManager,
        source: IngestService,
        admin: ManagementApi,
        certificates: Certificates,
        loop_lag: LoopLag,
        starting: Callable[[], str | None],
        stopping: asyncio.Event,
    ) -> None:
        """``starting``: the part of the node that is being started."""
        self._node_id = node_id
        self._metadata = metadata
        self._partitions = partitions
        self._source = source
        self._admin = admin
        self._certificates = certificates
        self._loop_lag = loop_lag
        self._starting = starting
        self._stopping = stopping
        self._has_listened = self._has_caught_up = False
        self._nats_was_well_s = time.monotonic()
        super().__init__(
            {
                "node": self._why_not_up,
                "metadata": lambda: str(self._metadata.failure or "") or None,
                "cluster": self._why_no_lease,
                "ingest": self._why_not_listening,
                "replicas": self._why_behind,
                "partitions": self._why_partitions_failed,
                "nats": self._why_no_nats,
                **{name: partial(self._why_unfit, name) for name in DISABLING},
            }
        )

    def troubles(self) -> list[Trouble]:
        """What keeps this node from its work, as ``metadata.nodes.node_condition`` judges it."""
        metadata, shown, now = self._metadata, self._certificates.shown, datetime.now(UTC)
        ours, https = shown.get(KAFKA), shown.get(HTTP)
        if https == ours:
            https = None
        return judge(
            Facts(
                disk_full=not self._partitions.has_room,
                certificate_left=None if ours is None else ours.not_after - now,
                http_certificate_left=None if https is None else https.not_after - now,
                clock_ahead_s=metadata.clock_skew_s,
                clock_agreed=metadata.clock_is_agreed,
                nats_answers_s=max(0.0, self._admin.latency.seconds - self._loop_lag.seconds),
                gone=[
                    f"{tp.stream}/{tp.partition}: {gone} ({self._partitions.gone_path(tp)})"
                    for tp, gone in self._partitions.gone().items()
                ],
            )
        )

    def unfit(self) -> tuple[str, ...]:
        """What the controller hears of, beside a full disk, which it hears of at once."""
        troubles = self.troubles()
        found = {*disabling(troubles), *endured(troubles)} - {DISK}
        if self._is_without_nats():
            found.add(NATS)
        if self._partitions.is_damaged_alone():
            found.add(DAMAGED)
        return tuple(sorted(found))

    def _is_without_nats(self) -> bool:
        """A connection that is restored in a moment is no news for others."""
        now_s = time.monotonic()
        if self._why_no_nats() is None or self._starting():
            self._nats_was_well_s = now_s
        return now_s - self._nats_was_well_s > NATS_PATIENCE_S

    # The conditions

    def _why_not_up(self) -> str | None:
        if self._stopping.is_set():
            return "the node is stopping"
        part = self._starting()
        if part == "registration":
            return f"the node is starting: waiting to register: {self._metadata.waiting_for}"
        return f"the node is starting: {part}" if part else None

    def _why_no_lease(self) -> str | None:
        if self._starting() or self._metadata.lease.held:
            return None
        return "no word from the controller: nothing is acknowledged, committed records are read"

    def _why_not_listening(self) -> str | None:
        """Only of a node that starts: later on, leaders come and go."""
        if not self._has_listened and not self._starting():
            image = self._metadata.image
            node = image.nodes.get(self._node_id)
            let_in = node is not None and not node.fenced
            self._has_listened = let_in and self._source.has_settled(image)
        if self._has_listened:
            return None
        return "the node has not begun yet to listen for the streams that it leads"

    def _why_behind(self) -> str | None:
        """Only of a node that starts: a rolling restart has to wait until this one is
        in sync. Later on, replicas come and go.
        """
        if self._has_caught_up or self._starting():
            return None
        behind = self._metadata.image.out_of_sync(self._node_id)
        self._has_caught_up = not behind
        behind -= len(self._partitions.unopened)  # those do not catch up
        return f"catching up: {_partitions(behind)} not in sync yet" if behind > 0 else None

    def _why_partitions_failed(self) -> str | None:
        """Of a node that has started: a rolling restart must not take it for in sync.
        What fails later on is on the page; others lead it.
        """
        failures = self._partitions.unopened
        if self._has_caught_up or self._starting() or not failures:
            return None
        tp, why = next(iter(failures.items()))
        return f"{_partitions(len(failures))} not written until this is repaired: {tp}: {why}"

    def _why_unfit(self, name: str) -> str | None:
        found = (it for it in self.troubles() if it.name == name and it.is_disabling)
        return next((f"{it.said}; {it.condition.remedy}" for it in found), None)

    def _why_no_nats(self) -> str | None:
        if not (self._source.is_connected and self._admin.is_ready):
            complaint = self._source.complaint or self._admin.complaint
            why = f" ({complaint})" if complaint else ""
            return f"not connected to NATS: nothing is taken in, reads go on{why}"
        return str(self._admin.complaint) if self._admin.complaint else None


def _partitions(number: int) -> str:
    return "1 partition is" if number == 1 else f"{number} partitions are"
