"""Pages of messages, forwards and backwards, and searches that are bounded."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from streamlog.errors import InvalidRequest
from streamlog.http.console.messages import browse
from streamlog.http.console.messages.browse import (
    BrowseQuery,
    Budget,
    PartitionMatches,
    Start,
    search,
)
from streamlog.http.console.messages.decode import Decoding
from streamlog.http.console.messages.partition_source import LocalSource
from tests.readable_partition import TIME_MS, FakePartition

DAY_MS = 86_400_000


def source(*batches: int, subject: Callable[[int], str] = lambda number: f"s.{number % 10}") -> Any:
    """Batches of so many records."""
    at, made = 0, []
    for count in batches:
        made.append([subject(number) for number in range(at, at + count)])
        at += count
    return LocalSource(FakePartition(made))  # type: ignore[arg-type]


def asked(**given: Any) -> BrowseQuery:
    several = {name: given.pop(name, []) for name in ("header", "path")}
    given = {"stream": "s", "partition": "0", **{it.rstrip("_"): str(v) for it, v in given.items()}}
    return BrowseQuery.of(given, several.__getitem__)


async def page(of: Any, query: BrowseQuery, budget: Budget | None = None) -> PartitionMatches:
    return await search(of, query, Decoding(), budget or Budget())


def offsets(found: PartitionMatches) -> list[int]:
    return [it["offset"] for it in found.found]


async def test_the_newest_come_first_and_pages_go_on_where_the_last_one_ended() -> None:
    of = source(7, 1, 30, 12)
    first = await page(of, asked(count=5))
    assert offsets(first) == [49, 48, 47, 46, 45]
    assert (first.next, first.start, first.end) == (45, 0, 50)
    second = await page(of, asked(count=44, at="0:45"))
    assert offsets(second) == list(range(44, 0, -1))
    last = await page(of, asked(count=5, at=f"0:{second.next}"))
    assert (offsets(last), last.next) == ([0], None)


@pytest.mark.parametrize(
    ("start", "first"),
    [("start", 0), ("17", 17), ("-10", 40), ("-1000", 0), ("49", 49), ("50", None), ("99", None)],
)
async def test_from_an_offset_on(start: str, first: int | None) -> None:
    found = await page(source(7, 1, 30, 12), asked(from_=start, count=3))
    expected = [] if first is None else list(range(first, min(50, first + 3)))
    assert offsets(found) == expected
    assert found.next == (None if not expected or expected[-1] == 49 else expected[-1] + 1)


async def test_from_a_time_on() -> None:
    of = source(7, 1, 30, 12)  # each batch has the time of its base offset
    for text, first in ((f"{TIME_MS + 8}", 8), (f"{TIME_MS + 100}", None)):
        start = Start(time_ms=int(text))
        query = BrowseQuery("s", 0, start, 2, asked().wanted, {})
        found = await page(of, query)
        assert offsets(found)[:1] == ([] if first is None else [first])


def test_what_may_stand_in_from() -> None:
    def of(text: str) -> Start:
        return Start.of(text, 10 * DAY_MS)

    assert of("") == of("end") == Start(is_end=True)
    assert of("-15m") == Start(time_ms=10 * DAY_MS - 15 * 60_000)
    assert of("-2d") == Start(time_ms=8 * DAY_MS)
    assert of("1970-01-02T00:00:00Z") == of("1970-01-02") == Start(time_ms=DAY_MS)
    assert of("1970-01-02T01:00:00+01:00") == Start(time_ms=DAY_MS)
    assert of("-3") == Start(back=3)
    for wrong in ("newest", "1e3", "-", "--3", "²", "9" * 30, "-9999999999d"):
        with pytest.raises(InvalidRequest, match="from: end, start, an offset"):
            of(wrong)


async def test_a_search_finds_the_same_in_both_directions() -> None:
    chance = random.Random(7)
    batches = [chance.randint(1, 40) for _ in range(60)]
    of = source(*batches, subject=lambda number: "s.rare" if number % 97 == 5 else "s.other")
    expected = [number for number in range(sum(batches)) if number % 97 == 5]
    for count in (1, 3, 200):
        for start in ("start", "end"):
            found: list[int] = []
            at: int | None = None
            while True:
                more = {} if at is None else {"at": f"0:{at}"}
                one = await page(of, asked(from_=start, subject="*.rare", count=count, **more))
                assert len(one.found) <= count
                found += offsets(one)
                at = one.next
                if at is None:
                    break
            assert found == (expected if start == "start" else expected[::-1])


@pytest.mark.parametrize("start", ["start", "end"])
async def test_a_search_ends_with_its_budget_and_says_where_it_goes_on(start: str) -> None:
    of = source(*[500] * 60)
    budget = Budget(records=500)
    found = await page(of, asked(from_=start, text="nowhere"), budget)
    assert (found.found, budget.spent) == ([], "records")
    assert 500 <= budget.records < 15_000
    looked_at = found.next if start == "start" else 30_000 - (found.next or 0)
    assert looked_at == budget.records
    assert Budget(size_bytes=0).spent == "bytes"
    assert Budget(seconds=0).spent == "time"


async def test_values_are_searched_as_they_are_decoded() -> None:
    of = source(20)
    assert offsets(await page(of, asked(from_="start", text="OF S.3"))) == [3, 13]
    assert offsets(await page(of, asked(from_="start", path=["$"]))) == [], "it is no JSON"


async def test_an_erased_message_is_not_found() -> None:
    of = source(20)
    of._partition.erased.add(13)
    assert offsets(await page(of, asked(from_="start", text="of s.3"))) == [3]


def test_partitions_are_merged_by_time() -> None:
    def records(*times: int) -> list[dict[str, Any]]:
        return [{"offset": 100 + it, "timestamp_ms": it} for it in times]

    parts = {0: PartitionMatches(records(9, 4), None), 1: PartitionMatches(records(8, 7, 5), 42)}
    found, places = browse.merged(parts, asked(count=3))
    assert [it["timestamp_ms"] for it in found] == [9, 8, 7]
    assert places == {0: 105, 1: 106}, "below which each goes on"
    parts = {0: PartitionMatches(records(1, 6), None), 1: PartitionMatches(records(2, 3), 42)}
    found, places = browse.merged(parts, asked(count=3, from_="start"))
    assert [(it["partition"], it["timestamp_ms"]) for it in found] == [(0, 1), (1, 2), (1, 3)]
    assert places == {0: 106, 1: 42}


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": "0"},
        {"count": "201"},
        {"partition": "x"},
        {"at": "1"},
        {"at": "x:1"},
        {"at": "1:-1"},
    ],
)
def test_a_wrong_question_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=r"a number from"):
        asked(**wrong)
