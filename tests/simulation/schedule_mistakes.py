"""Known mistakes of schedules, each planted into streamlog's own code, one at a time."""

from collections.abc import Iterable
from typing import Any

import pytest

from streamlog.ingest.admission.rollups import Place, Rollups
from streamlog.ingest.partition_ingest import PartitionIngest
from streamlog.ingest.schedules import firing
from streamlog.ingest.schedules.firing import PartitionSchedules
from streamlog.ingest.schedules.log_scan import Event, Fired, scan
from streamlog.ingest.schedules.pending_schedules import PendingSchedules
from streamlog.log.segment.file_slice import FileSlice
from streamlog.partition.deletes.message_deletes import MessageDeletes
from streamlog.record.offset_set import OffsetSet


def fire_before_the_log_is_read(patch: pytest.MonkeyPatch) -> None:
    """A leader fires what it has found so far."""

    def init(self: PartitionSchedules, *args: Any) -> None:
        inner(self, *args)
        self._needed = 0

    inner = PartitionSchedules.__init__
    patch.setattr(PartitionSchedules, "__init__", init)


def forget_what_others_have_fired(patch: pytest.MonkeyPatch) -> None:
    """A leader knows what it has fired itself, and what schedules are there."""

    def scanned(part: FileSlice, from_offset: int) -> tuple[list[Event], int]:
        found, until = scan(part, from_offset)
        return [it for it in found if not isinstance(it, Fired)], until

    patch.setattr(firing, "scan", scanned)


def fire_what_was_there_when_it_was_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Whatever has come, or gone, since."""
    patch.setattr(firing, "_is_current", lambda *_: True)


def owe_nothing_of_former_leaders(patch: pytest.MonkeyPatch) -> None:
    """A schedule whose last message a leader has appended, and not its end, stays."""
    patch.setattr(PartitionIngest, "owe", lambda *_: None)


def take_what_is_not_found_for_erased(patch: pytest.MonkeyPatch) -> None:
    """A purge that finds nothing is done: the index of subjects knows of erasures that are not committed."""

    async def erase(self: MessageDeletes, erased: OffsetSet) -> None:
        if erased:
            await inner(self, erased)

    inner = MessageDeletes.erase
    patch.setattr(MessageDeletes, "erase", erase)


def take_erasures_in_the_log_for_committed(patch: pytest.MonkeyPatch) -> None:
    """A repeated message that has others go waits for its own commit, where a former leader has had them go."""

    def inherit(self: Rollups, places: Iterable[Place]) -> None:
        self.owed += places

    patch.setattr(Rollups, "inherit", inherit)


def fire_what_may_have_fired(patch: pytest.MonkeyPatch) -> None:
    """The log says nothing of it; but its files were written again without what was erased."""
    patch.setattr(PendingSchedules, "may_have_fired", lambda *_: False)
