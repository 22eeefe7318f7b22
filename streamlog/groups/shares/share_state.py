"""What is kept of a share partition: a partition as a share group reads it. Pure."""

from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

NO_OWNER: Final = UUID(int=0)
NOT_SET: Final = -1
"""The start offset of a share partition that has none: ``share.auto.offset.reset`` says where it begins."""


@dataclass(frozen=True, slots=True)
class StateKey:
    """Its value is a ``ShareState``."""

    group: str
    topic_id: UUID
    partition: int


class ShareState(NamedTuple):
    """How far a group has come in a partition, as the leader of the partition has kept it."""

    leader_epoch: int = -1
    """Of the partition, when its leader took the state over."""
    owner: UUID = NO_OWNER
    """made by each leader that takes the state over: no other may change it from then on."""
    version: int = 0
    """It rises with each change by the owner."""
    start_offset: int = NOT_SET
    """All below is done with."""
    end_offset: int = NOT_SET
    """Nothing from here on was delivered."""
    pending: int = 0
    """Records between the two that are not done with."""
    delivery: bytes = b""
    """``delivery.Delivery.encode``; empty: nothing was delivered from the start offset on."""
