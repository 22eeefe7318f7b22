"""What a new position comes to in a partition whose log holds offsets 10 to 49; whom lists of groups tell what."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamlog.authz.audit import Audit
from streamlog.control.groups import (
    LIST_MAX,
    LOOKED_AT_ONCE,
    GroupOperations,
    OffsetChange,
    ShownChange,
    StreamPartitions,
    Target,
    _by_stream,
    _check_empty,
    change_of,
)
from streamlog.control.leaders.group_coordinators import (
    GroupMember,
    GroupOffset,
    GroupSummary,
    KnownGroup,
    WantedOffset,
)
from streamlog.control.operation import Caller
from streamlog.errors import GroupForbidden, GroupNotEmpty, InvalidRequest, StalePartition
from streamlog.groups.records import NO_TOPIC_ID
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metrics import NodeMetrics
from streamlog.model import TopicPartition
from tests import page_world
from tests.restricted import ALICE

ORDERS = TopicPartition("orders", 0)


def target(**given: Any) -> Target:
    nothing = {"earliest": False, "latest": False, "offset": None, "start_ms": None, "shift": None}
    return Target(**{**nothing, **given})


def change(committed: int | None, wanted: Target, at_time: int | None = None) -> OffsetChange:
    return change_of(ORDERS, committed, (10, 50), wanted, at_time)


@pytest.mark.parametrize(
    ("committed", "wanted", "offset", "skipped", "repeated", "note"),
    [
        (30, target(earliest=True), 10, 0, 20, ""),
        (30, target(latest=True), 50, 20, 0, ""),
        (30, target(offset=30), 30, 0, 0, ""),
        (30, target(offset=50), 50, 20, 0, ""),
        (30, target(shift=-5), 25, 0, 5, ""),
        (30, target(shift=5), 35, 5, 0, ""),
        (30, target(shift=-25), 10, 0, 20, "the log begins at 10"),
        (30, target(shift=25), 50, 20, 0, "the log ends at 50"),
        (3, target(earliest=True), 10, 0, 0, ""),
        (3, target(offset=12), 12, 2, 0, ""),
        (None, target(latest=True), 50, 0, 0, ""),
    ],
)
def test_a_target_becomes_an_offset(
    committed: int | None, wanted: Target, offset: int, skipped: int, repeated: int, note: str
) -> None:
    found = change(committed, wanted)
    assert (found.new_offset, found.skipped, found.repeated, found.note) == (
        offset, skipped, repeated, note,
    )  # fmt: skip


def test_a_time_is_the_first_record_that_is_not_older() -> None:
    assert change(30, target(start_ms=7), 20).new_offset == 20
    late = change(30, target(start_ms=7), 50)
    assert (late.new_offset, late.note) == (50, "no record is so late")


@pytest.mark.parametrize(
    ("committed", "wanted"),
    [(30, target(offset=9)), (30, target(offset=51)), (None, target(shift=1))],
)
def test_a_target_that_is_not_there_is_refused(committed: int | None, wanted: Target) -> None:
    with pytest.raises(InvalidRequest):
        change(committed, wanted)


@pytest.mark.parametrize(
    "given", [{}, {"earliest": True, "latest": True}, {"offset": 0, "shift": 0}]
)
def test_one_target_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        target(**given).check()


class Coordinators:
    """Those of many groups. What they are asked about one of them is noted."""

    def __init__(self, *names: str) -> None:
        self.groups = [GroupSummary(it, "Empty", "consumer", 0) for it in names]
        self.asked: list[str] = []

    async def all(self) -> tuple[list[GroupSummary], list[int]]:
        return self.groups, []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        raise AssertionError(f"{name} is asked for")


class Access:
    """To groups whose names begin with ``seen``."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def sees_group(self, name: str) -> bool:
        self.judged.append(name)
        return name.startswith("seen")

    def check_group(self, operation: object, name: str) -> None:
        raise GroupForbidden(name)


async def _at_once() -> bool:
    return True


def operations(coordinators: Coordinators, access: Access | None) -> GroupOperations:
    service = SimpleNamespace(
        metrics=NodeMetrics(),
        coordinators=coordinators,
        freshness=SimpleNamespace(catch_up=_at_once),
        audit=Audit(),
        metadata_for=lambda _: None,
    )
    return GroupOperations(cast(Any, service), Caller(ALICE, cast(Any, access)))


async def test_a_page_is_of_the_groups_that_the_caller_may_know_of() -> None:
    names = [f"{kind}-{number}" for number in range(5) for kind in ("hidden", "seen")]
    coordinators, access = Coordinators(*sorted(names)), Access()
    groups = operations(coordinators, access)
    page = await groups.list(offset=1, limit=2)
    assert ([it.group for it in page.groups], page.total) == (["seen-1", "seen-2"], 5)
    assert sorted(access.judged) == sorted(names), "each is judged once, whether it is shown or not"
    assert (await groups.list(offset=9)).groups == ()
    assert (await groups.list(limit=0)).total == 5
    assert (await groups.list(state="stable")).total == 0
    assert (await operations(coordinators, None).list()).total == 10


@pytest.mark.parametrize(("offset", "limit"), [(0, LIST_MAX + 1), (0, -1), (-1, 1)])
async def test_a_page_beyond_the_limits_is_refused(offset: int, limit: int) -> None:
    with pytest.raises(InvalidRequest, match=f"0 to {LIST_MAX}"):
        await operations(Coordinators("seen"), Access()).list(offset, limit)


async def test_many_groups_are_looked_at_in_turns() -> None:
    names = [f"hidden-{number}" for number in range(3 * LOOKED_AT_ONCE)]
    access, longest, before = Access(), 0, 0
    listing = asyncio.create_task(operations(Coordinators(*names), access).list())
    while not listing.done():
        await asyncio.sleep(0)
        longest, before = max(longest, len(access.judged) - before), len(access.judged)
    assert (await listing).total == 0
    assert longest <= LOOKED_AT_ONCE


@pytest.mark.parametrize(
    "ask",
    [
        lambda groups: groups.describe("g"),
        lambda groups: groups.delete("g"),
        lambda groups: groups.delete_offsets("g", (StreamPartitions("orders"),)),
        lambda groups: groups.reset("g", ("orders",), to_latest=True),
    ],
)
async def test_nothing_is_asked_about_a_group_that_the_caller_may_not_know_of(
    ask: Callable[[GroupOperations], Coroutine[Any, Any, Any]],
) -> None:
    """So the time of the answer does not tell whether it is there."""
    coordinators = Coordinators("g")
    groups = operations(coordinators, Access())
    groups._service.freshness = cast(Any, None)
    with pytest.raises(GroupForbidden):
        await ask(groups)
    assert coordinators.asked == []


def test_a_stream_is_looked_at_once_however_often_it_is_named() -> None:
    """A few bytes must not stand for thousands of partitions, again and again."""
    a, b = StreamPartitions("a"), StreamPartitions("b", (3, 1))
    assert _by_stream([a, b, a, StreamPartitions("b", (1, 2))]) == {"a": None, "b": (3, 1, 2)}
    assert _by_stream([StreamPartitions("a", (1,)), a, StreamPartitions("a", (2,))]) == {"a": None}


def consumer(name: str) -> GroupMember:
    return GroupMember(f"{name}-1", None, name, "/127.0.0.1", ())


def known(*members: GroupMember, **committed: int) -> KnownGroup:
    offsets = tuple(
        GroupOffset(name, 0, offset, -1, "", NO_TOPIC_ID) for name, offset in committed.items()
    )
    return KnownGroup("Empty", "consumer", "", members, offsets)


def test_who_is_in_the_way_is_named() -> None:
    _check_empty("g", known())
    with pytest.raises(GroupNotEmpty, match=r"has 1 member \(x at 127.0.0.1\); stop them first"):
        _check_empty("g", known(consumer("x")))
    with pytest.raises(GroupNotEmpty, match=r"5 members \(a at .*, b at .*, c at .*, and 2 more\)"):
        _check_empty("g", known(*map(consumer, "abcde")))


class OneGroup:
    """The coordinator of a group that has committed 30 in the one partition of ``orders``."""

    def __init__(self, committed: int | None = 30) -> None:
        self.committed = committed
        self.written: list[tuple[int | None, int]] = []

    async def known(self, group: str) -> KnownGroup:
        return known() if self.committed is None else known(orders=self.committed)

    async def make(self, group: str) -> None:
        """It is there."""

    async def commit(self, group: str, wanted: list[WantedOffset]) -> None:
        self.written += [(it.before, it.offset) for it in wanted]


class Leaders:
    async def states(self, streams: list[StreamImage]) -> dict[TopicPartition, Any]:
        return {ORDERS: SimpleNamespace(log_start_offset=10, high_watermark=50)}


def resetting(coordinator: OneGroup) -> GroupOperations:
    image = page_world.image(page_world.stream("orders", page_world.partition()))
    service = SimpleNamespace(
        coordinators=coordinator,
        freshness=SimpleNamespace(catch_up=_at_once),
        leaders=Leaders(),
        audit=Audit(),
        metrics=NodeMetrics(),
        metadata_for=lambda _: SimpleNamespace(image=image),
    )
    return GroupOperations(cast(Any, service), Caller(ALICE, None))


async def test_changes_are_made_as_they_were_shown() -> None:
    coordinator = OneGroup()
    groups = resetting(coordinator)
    (shown,) = (await groups.reset("g", to_latest=True, validate_only=True)).partitions
    assert coordinator.written == []
    changes = (ShownChange("orders", 0, shown.committed_offset, 40),)
    assert (await groups.reset("g", changes=changes)).changed
    assert coordinator.written == [(30, 40)], "where it was shown, not where the log ends by now"
    coordinator.committed = 40
    await groups.reset("g", changes=changes)
    assert coordinator.written[1:] == [(40, 40)], "whose answer was lost is asked for again"
    coordinator.committed = 35
    with pytest.raises(StalePartition, match="has committed something in orders-0 meanwhile"):
        await groups.reset("g", changes=changes)
    assert len(coordinator.written) == 2


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ([ShownChange("orders", 0, 30, 51)], {}),
        ([ShownChange("orders", 0, 30, 9)], {}),
        ([ShownChange("orders", 0, 30, 40)] * 2, {}),
        ([ShownChange("orders", 0, 30, 40)], {"to_latest": True}),
        ([ShownChange("orders", 0, 30, 40)], {"streams": ("orders",)}),
    ],
)
async def test_changes_that_cannot_be_made(
    changes: list[ShownChange], more: dict[str, Any]
) -> None:
    coordinator = OneGroup()
    with pytest.raises(InvalidRequest):
        await resetting(coordinator).reset("g", changes=tuple(changes), **more)
    assert coordinator.written == []


async def test_whether_a_group_can_be_deleted_is_told_without_doing_it() -> None:
    coordinator = OneGroup()
    await resetting(coordinator).delete(
        "g", validate_only=True
    )  # there is no ``delete`` to be asked
