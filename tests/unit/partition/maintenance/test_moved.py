"""Partitions whose offsets have changed are noted while they are asked for, and no longer."""

from types import SimpleNamespace
from typing import Any

from streamlog.config import LogSection
from streamlog.log.settings import LogSettings
from streamlog.partition.maintenance.scheduled_tasks import ScheduledTasks


class Unlimited:
    """A partition whose log has no limits."""

    state = SimpleNamespace(log=SimpleNamespace(settings=LogSettings()))


def test_moves_are_those_since_the_last_call() -> None:
    nothing: Any = None
    tasks = ScheduledTasks({}, nothing, nothing, LogSection())
    one, two = Unlimited(), Unlimited()

    def move(*partitions: Any) -> None:
        for it in partitions:
            tasks.offsets_changed(it)

    move(one)
    assert tasks.moved(go_on=True) == set(), "nobody had asked for them"
    move(one, two, one)
    assert tasks.moved(go_on=True) == {one, two}
    move(two)
    assert tasks.moved(go_on=False) == {two}
    move(one)
    assert tasks.moved(go_on=True) == set()
