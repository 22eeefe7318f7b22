"""Nodes that a caller names for new partitions, the first of each to lead it."""

from collections.abc import Sequence
from typing import Final, NoReturn

from kio.schema.errors import ErrorCode

from streamlog.kafka.refusal import RequestRefused
from streamlog.kafka.topology import live_nodes
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId

Assignments = tuple[tuple[NodeId, ...], ...]
"""The nodes of each partition, in order; empty: the controller chooses."""

NONE: Final[Assignments] = ()


def check_assignments(
    assignments: Assignments, image: MetadataImage, *, replicas: int, numbers: Sequence[int]
) -> None:
    """Raises Refused unless there are ``replicas`` live nodes for each of the ``numbers``."""
    if len(assignments) != len(numbers):
        refuse(f"nodes are named for {len(assignments)} new partitions, of {len(numbers)}")
    live = live_nodes(image)
    for number, nodes in zip(numbers, assignments, strict=True):
        if not nodes or len(nodes) != replicas or len(set(nodes)) != replicas:
            refuse(f"partition {number}: {list(nodes)} are not {replicas} different nodes")
        if not live >= set(nodes):
            refuse(f"partition {number}: of {list(nodes)} only {sorted(live)} are live nodes")


def refuse(text: str) -> NoReturn:
    """Raises Refused."""
    raise RequestRefused(ErrorCode.invalid_replica_assignment, text)
