"""Known mistakes of tiered storage, each planted into streamlog's own code, one at a time."""

import pytest

from streamlog.partition.partition import Partition
from streamlog.partition.tiering.tiered_log import TieredLog


def let_go_of_what_is_not_in_the_store(patch: pytest.MonkeyPatch) -> None:
    """A replica lets go of each closed segment by its local retention, whether or not it was copied."""

    def tiered_end_offset(self: TieredLog) -> int | None:
        return None if self.image is None else self._log.sealed_end

    patch.setattr(TieredLog, "tiered_end_offset", property(tiered_end_offset))


def purge_the_local_log_alone(patch: pytest.MonkeyPatch) -> None:
    """A purge moves the start of the logs, and the metadata are not asked: what is in the store stays."""

    async def nothing(self: Partition, _target: int) -> None:
        """The store is forgotten."""

    patch.setattr(Partition, "_shorten_tier", nothing)


def begin_where_the_local_log_does(patch: pytest.MonkeyPatch) -> None:
    """What is in the store alone does not belong to the partition."""
    patch.setattr(TieredLog, "log_start_offset", property(lambda self: self._log.log_start_offset))


def lead_without_a_look_at_the_store(patch: pytest.MonkeyPatch) -> None:
    """An unclean leader takes its own log for the partition, and cuts the manifest to that."""
    patch.setattr(Partition, "settle_store_end", lambda _self: None)
