"""What the page asks other nodes for.

The groups that they coordinate, while the page is watched, and the transactional ids, while these are looked at; and,
while there is no controller to say so, whether they answer.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from streamlog.clock import clock_s
from streamlog.control.service import ControlService
from streamlog.errors import StreamlogError
from streamlog.groups.service import GroupProgressPage
from streamlog.http.console.cluster_snapshot import CoordinatedGroup, CoordinatedTransaction
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId

PROBE_PERIOD_S: Final = 1.0
PROBE_TIMEOUT_S: Final = 1.0


class NodeProbe:
    """``run`` as a task. With a controller no node is asked: it knows who is alive."""

    def __init__(
        self,
        control: ControlService,
        *,
        image: Callable[[], MetadataImage],
        has_controller: Callable[[], bool],
    ) -> None:
        self.answers: Mapping[NodeId, bool] = {}
        """Whether each node that was asked answered; empty while there is a controller."""
        self._control = control
        self._image = image
        self._has_controller = has_controller

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(PROBE_PERIOD_S)

    async def look(self) -> None:
        """Ask each of the others once."""
        if self._has_controller():
            self.answers = {}
            return
        nodes = self._image().nodes.values()
        others = [
            it.node_id for it in nodes if it.node_id != self._control.node_id and it.has_address
        ]
        there = await self._control.nodes.answering(others, timeout_s=PROBE_TIMEOUT_S)
        self.answers = {} if self._has_controller() else {it: it in there for it in others}


PERIOD_S: Final = 2.0


class RemoteGroups:
    """``run`` as a task. A node that does not answer leaves its groups as they were last told,
    until it is gone from the cluster's live nodes.
    """

    def __init__(
        self,
        control: ControlService,
        *,
        image: Callable[[], MetadataImage],
        is_watched: Callable[[], bool],
        partitions_max: int,
    ) -> None:
        """``partitions_max``: of the groups of one node, see ``groups.service.progress_of``."""
        self._control = control
        self._image = image
        self._is_watched = is_watched
        self._partitions_max = partitions_max
        self._told: dict[NodeId, GroupProgressPage] = {}

    @property
    def groups(self) -> list[CoordinatedGroup]:
        return [
            CoordinatedGroup(*it, node_id)
            for node_id, told in self._told.items()
            for it in told.groups
        ]

    @property
    def hidden(self) -> int:
        """Groups that are not told."""
        return sum(it.omitted for it in self._told.values())

    async def run(self) -> None:
        while True:
            if self._is_watched():
                await self.refresh()
            await asyncio.sleep(PERIOD_S)

    async def refresh(self) -> None:
        """Ask each of the others once, one after the other."""
        nodes = self._image().nodes.values()
        others = [
            it.node_id for it in nodes if it.node_id != self._control.node_id and not it.fenced
        ]
        for gone in self._told.keys() - set(others):
            del self._told[gone]
        for node_id in others:
            try:
                self._told[node_id] = await self._control.coordinators.progress_at(
                    node_id, self._partitions_max
                )
            except StreamlogError:
                continue


TRANSACTIONS_MAX: Final = 10_000
"""Transactional ids that are shown; open ones first."""


class AllTransactions:
    """Of this node and the others. ``look`` before they are shown."""

    def __init__(self, control: ControlService) -> None:
        self.known: list[CoordinatedTransaction] = []
        """Those that have been open for the longest time first; those that are not open last, by name."""
        self._control = control
        self._looked_s = -PERIOD_S
        self._looking = asyncio.Lock()

    async def look(self) -> None:
        """Ask the coordinators, unless that was done a moment ago. One that does not answer tells nothing."""
        async with self._looking:
            if clock_s() - self._looked_s < PERIOD_S:
                return
            routes = self._control.transactions
            found, _ = await routes.all()
            found.sort(
                key=lambda it: (
                    not it.transaction.is_open,
                    it.transaction.is_open and it.transaction.start_ms,
                )
            )
            self.known = [
                CoordinatedTransaction(*it, routes.node_of(it.transactional_id))
                for it in found[:TRANSACTIONS_MAX]
            ]
            self._looked_s = clock_s()
