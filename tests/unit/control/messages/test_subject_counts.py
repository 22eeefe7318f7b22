import json
from typing import Any

import pytest

from streamlog.control.messages import subject_counts
from streamlog.control.messages.subject_counts import SubjectPage, count_subjects, page_of, part_of
from streamlog.errors import Overloaded
from streamlog.record.codec import RecordRun
from streamlog.record.compiled.subjects import SubjectIndex


class FakePartition:
    """With these subjects, one message each; the last is not committed."""

    def __init__(self, names: list[bytes]) -> None:
        run = RecordRun()
        for name in names:
            run.append(None, b"", [(b"subject", name)])
        self.index: SubjectIndex | None = SubjectIndex(bytes(16), bytes_max=1 << 40)
        self.index.note(run.body_from(0), len(names), 0, len(names))
        self.high_watermark = self.stable_offset = len(names) - 1

    @property
    def subjects(self) -> Any:
        return self

    async def know(self) -> SubjectIndex:
        assert self.index is not None
        return self.index

    def at_hand(self) -> SubjectIndex | None:
        return self.index


async def test_a_partition_tells_its_subjects_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_counts, "PART_BYTES_MAX", 3_000)
    monkeypatch.setattr(subject_counts, "LOOKED_AT_ONCE", 20)
    names = [b"orders.%d.%d" % (number % 7, number) for number in range(1000)]
    partition: Any = FakePartition([*names, b"uncommitted"])
    found: dict[str, int] = {}
    cursor, parts = 0, 0
    while True:
        part = await part_of(partition, "orders.3.*", cursor)
        assert len(json.dumps(part.totals)) < 5_000
        found |= part.totals
        parts += 1
        if part.cursor is None:
            break
        cursor = part.cursor
    assert found == {f"orders.3.{number}": 1 for number in range(3, 1000, 7)}
    assert parts > 1
    assert await part_of(partition, "uncommitted", 0) == ({}, None)
    assert count_subjects(partition) == 1000


async def test_bytes_that_are_no_text() -> None:
    partition: Any = FakePartition([b"a.\xff", b"a.\xfe", b"b"])
    assert (await part_of(partition, "a.*", 0)).totals == {"a.\ufffd": 2}


def test_what_is_not_known_is_not_counted() -> None:
    partition: Any = FakePartition([b"a", b"b"])
    partition.index = None
    assert count_subjects(partition) is None

    def at_hand() -> None:
        raise Overloaded

    partition.at_hand = at_hand
    assert count_subjects(partition) is None


async def test_what_fits_is_one_page() -> None:
    totals = {"b": 2, "a": 1}
    page = await page_of(totals, 0)
    assert page == SubjectPage(2, 0, 100_000, totals)
    assert page.json() == {"total": 2, "offset": 0, "limit": 100_000}
    assert (await page_of({}, 0)).json() == {}
    assert await page_of(totals, 1) == SubjectPage(2, 1, 100_000, {"b": 2})
    assert await page_of(totals, 7) == SubjectPage(2, 2, 100_000, {})


@pytest.mark.parametrize("limit", ["SUBJECTS_MAX", "PAGE_BYTES_MAX"])
async def test_what_does_not_comes_in_order_in_pages(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Whether a client goes on after the limit or after what it got is all the same."""
    monkeypatch.setattr(subject_counts, "SORTED_AT_ONCE", 7)
    monkeypatch.setattr(subject_counts, limit, 40 if limit == "SUBJECTS_MAX" else 1_000)
    totals = {f"orders.{number * 37 % 100}": number for number in range(100)}
    found: list[str] = []
    while True:
        page = await page_of(totals, len(found))
        assert (page.total, page.offset) == (100, len(found))
        assert len(json.dumps(page.subjects)) <= 1_500
        found += page.subjects
        if len(found) == 100:
            break
        assert page.limit == len(page.subjects) <= 50
    assert found == sorted(totals)


async def test_letters_that_are_not_ascii_take_more_room() -> None:
    name = "\u00e9" * 60
    totals = {f"{name}.{number}": 1 for number in range(5_000)}
    page = await page_of(totals, 0)
    assert 0 < len(page.subjects) < 5_000
    assert len(json.dumps(page.subjects)) < 1_000_000
