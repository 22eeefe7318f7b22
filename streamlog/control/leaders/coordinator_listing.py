"""What all coordinators of a cluster have, node by node: consumer groups, transactional ids.

A coordinator is the leader of a partition of an internal stream. A node answers for all that it coordinates, or not at
all: while it does not know yet what one of its partitions has, nothing it said would be complete.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from streamlog.control.leaders.node_requests import NodeRequests
from streamlog.errors import (
    CoordinatorLoading,
    CoordinatorUnavailable,
    CorruptData,
    NotCoordinator,
    NotLeader,
    StreamlogError,
)
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NO_LEADER, NodeId
from streamlog.wire.error_codes import ErrorCode

LISTED_AT_ONCE: Final = 5_000
"""Rows in one answer of a node."""
LIST_TIMEOUT_S: Final = 2.0
NAME_SHOWN: Final = 60
"""Characters of a name that is none."""
_RETRIED: Final[Mapping[ErrorCode, type[NotLeader]]] = {
    ErrorCode.not_coordinator: NotCoordinator,
    ErrorCode.coordinator_load_in_progress: CoordinatorLoading,
    ErrorCode.coordinator_not_available: CoordinatorUnavailable,
}

Row = TypeVar("Row")


def not_coordinated(code: ErrorCode, about: str) -> NotLeader | None:
    """The error of a node that does not coordinate it, or not yet; None: ``code`` says something else."""
    error = _RETRIED.get(code)
    return None if error is None else error(f"{about} is not coordinated by this node just now")


class CoordinatorListing(Generic[Row]):
    """The rows of all nodes that lead partitions of ``stream``."""

    def __init__(
        self,
        node_id: NodeId,
        nodes: NodeRequests,
        image: Callable[[], MetadataImage],
        *,
        stream: str,
        verb: str,
        here: Callable[[str, int], list[Row]],
        name_of: Callable[[Row], str],
        decode: Callable[[Mapping[str, Any]], list[Row]],
    ) -> None:
        """``here``: the first rows of this node by name after that one, as many as that. ``verb`` asks another node
        for the same, and ``decode`` reads the fields of its answer.
        """
        self._node_id = node_id
        self._nodes = nodes
        self._image = image
        self._stream = stream
        self._verb = verb
        self._here = here
        self._name_of = name_of
        self._decode = decode

    async def all(self) -> tuple[list[Row], list[NodeId]]:
        """All rows by name, and the nodes whose rows are not known."""
        stream = self._image().streams.get(self._stream)
        leaders = sorted({it.leader for it in stream.partitions}) if stream is not None else []
        found = await asyncio.gather(*(self._all_at(it) for it in leaders))
        missing = [it for it, rows in zip(leaders, found, strict=True) if rows is None]
        each = {self._name_of(row): row for rows in found if rows is not None for row in rows}
        return [each[name] for name in sorted(each)], missing

    async def _all_at(self, node_id: NodeId) -> list[Row] | None:
        if node_id == NO_LEADER:
            return None
        found: list[Row] = []
        try:
            while True:
                after = self._name_of(found[-1]) if found else ""
                rows = await self._some_at(node_id, after)
                found += rows
                if len(rows) < LISTED_AT_ONCE:
                    return found
        except StreamlogError:
            return None

    async def _some_at(self, node_id: NodeId, after: str) -> list[Row]:
        if node_id == self._node_id:
            await asyncio.sleep(0)
            return self._here(after, LISTED_AT_ONCE)
        fields = {"after": after, "limit": LISTED_AT_ONCE}
        answer = await self._nodes.ask(node_id, self._verb, fields, timeout_s=LIST_TIMEOUT_S)
        try:
            return self._decode(answer.fields)
        except (KeyError, TypeError) as error:
            raise CorruptData(f"another node's answer does not decode: {error!r}") from None
