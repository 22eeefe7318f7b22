"""Upkeep of the tables of a job: a thread that carries it out from time to time while the job goes on, or once."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

from streamlog.condition import Condition
from streamlog.lake.catalog import TableName
from streamlog.lake.maintain import Done, Upkeep, maintain
from streamlog.lake.table import LakeTable

logger = logging.getLogger(__name__)

UPKEEP_FAILED: Final = Condition(
    "SL-0542",
    "upkeep of a lake table failed",
    "nothing, if it is seldom; else see whether catalog and store answer, and `streamlog lake maintain`",
    meaning="A job of `streamlog lake run` could not compact, expire or clean up. Its commits go on, and it tries again"
    " after --maintain-interval.",
)

INTERVAL_S: Final = 600.0
EXPIRE_MS: Final = 3_600_000
"""Less than where upkeep is done by hand: each commit writes down all snapshots that there are."""
PATIENCE_S: Final = 5.0
"""With a catalog that does not answer; the next time is soon enough."""
ORPHANS_S: Final = 3_600.0
"""Between two looks for orphans, which read the manifests of all snapshots."""


@dataclass(frozen=True)
class UpkeepPlan:
    """What a job does besides its commits."""

    upkeep: Upkeep
    """Its ``log_starts`` are asked for each time, if they are followed."""
    interval_s: float | None = INTERVAL_S
    """Between two upkeeps beside the commits; None: there are none."""
    follows_retention: bool = False

    def carry_out(
        self,
        table: LakeTable,
        log_starts: Callable[[], Mapping[int, int]],
        *,
        with_orphans: bool = True,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Done:
        """Raises what catalogs and stores raise."""
        upkeep = self.upkeep
        if self.follows_retention:
            upkeep = replace(upkeep, log_starts=log_starts())
        if not with_orphans:
            upkeep = replace(upkeep, orphan_ms=None)
        return maintain(table, upkeep, is_stopped=is_stopped)


def keep_up(
    table: TableName, plan: UpkeepPlan, log_starts: Callable[[], Mapping[int, int]]
) -> Iterator[tuple[TableName, Done]]:
    """Once, of a table and its dead letters. Raises what catalogs and stores raise."""
    for name in (table, table.dead_letters):
        found = LakeTable.at(name)
        if found.exists():
            yield name, plan.carry_out(found, log_starts)


class UpkeepThread:
    """Between ``with`` and its end. It has a catalog of its own, and commits beside the job: of two commits at once,
    one is repeated. What fails is logged, and tried again the next time.
    """

    def __init__(
        self,
        table: TableName,
        plan: UpkeepPlan,
        *,
        log_starts: Callable[[], Mapping[int, int]],
        told: Callable[[Done | None], None] = lambda _: None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """``told``: what was done; None: it failed."""
        self._table = table
        self._plan = plan
        self._log_starts = log_starts
        self._told = told
        self._patience_s = patience_s
        self._stopped = Event()
        self._thread: Thread | None = None
        self._orphans_after = 0.0

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._run, name="streamlog-lake-upkeep", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """A file that is being written is finished."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._plan.interval_s):
            for name in (self._table, self._table.dead_letters):
                try:
                    self._maintain(name)
                except Exception as error:  # catalogs and stores raise what they like
                    told = f"upkeep of {name.table} failed: {type(error).__name__}: {error}"
                    logger.warning(UPKEEP_FAILED.logged_as(told.partition("\n")[0]))
                    self._told(None)
            if time.monotonic() >= self._orphans_after:
                self._orphans_after = time.monotonic() + ORPHANS_S

    def _maintain(self, name: TableName) -> None:
        table = LakeTable.at(name, patience_s=self._patience_s)
        if not table.exists():
            return
        with_orphans = time.monotonic() >= self._orphans_after
        self._told(
            self._plan.carry_out(
                table,
                self._log_starts,
                with_orphans=with_orphans,
                is_stopped=self._stopped.is_set,
            )
        )
