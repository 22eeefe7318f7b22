"""``streamlog.arrow.read`` against a naive filter of all records: what matches comes out, and nothing else."""

import re
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamlog.arrow
from streamlog.record.columns import COLUMNS
from tests.record_batches import HandRecord
from tests.spark.data_folder import DataFolder

BASE_MS = 1_000
"""Of the times in batches made by hand, which go up to a second more."""
TOKENS = ("a", "bb", "größer", "c+", "*")


class Stored(NamedTuple):
    """A record of one partition."""

    subject: str | None
    time_ms: int


SUBJECTS = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=3).map(".".join)
RECORDS = st.lists(
    st.builds(Stored, st.one_of(st.none(), SUBJECTS), st.integers(BASE_MS, BASE_MS + 20)),
    min_size=1,
    max_size=12,
)
PATTERNS = st.builds(
    lambda tokens, tail: ".".join([*tokens, *tail]) or ">",
    st.lists(st.sampled_from((*TOKENS, "*")), max_size=3),
    st.sampled_from(([], [">"])),
)
TIMES = st.integers(BASE_MS - 2, BASE_MS + 22)


class Asked(NamedTuple):
    """The arguments of a read."""

    partitions: list[int] | None
    start: int | None
    end: int | None
    start_ms: int | None
    end_ms: int | None
    subjects: list[str]
    columns: list[str]
    batch_rows: int


@st.composite
def reads(draw: st.DrawFn, counts: list[int]) -> Asked:
    partitions = draw(
        st.none() | st.lists(st.integers(0, len(counts) - 1), min_size=1, unique=True)
    )
    least = min(counts[it] for it in partitions or range(len(counts)))
    by_time = draw(st.booleans())
    start_ms, end_ms = sorted((draw(TIMES), draw(TIMES)))
    start = draw(st.integers(0, least))
    end = draw(st.integers(start, least))
    return Asked(
        partitions,
        draw(st.sampled_from((None, start))) if not by_time else None,
        draw(st.sampled_from((None, end))) if not by_time else None,
        draw(st.sampled_from((None, start_ms))) if by_time else None,
        draw(st.sampled_from((None, end_ms))) if by_time else None,
        draw(st.lists(PATTERNS, max_size=2)),
        draw(st.lists(st.sampled_from(COLUMNS), unique=True)),
        draw(st.integers(1, 5)),
    )


def matches(pattern: str, subject: str | None) -> bool:
    """Token by token, as nats-server does."""
    if subject is None:
        return False
    tokens, wanted = subject.split("."), pattern.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(tokens) > index
        if index == len(tokens) or token not in ("*", tokens[index]):
            return False
    return len(tokens) == len(wanted)


def expected(stored: list[list[Stored]], asked: Asked) -> list[tuple[int, int]]:
    found = []
    for number in sorted(asked.partitions or range(len(stored))):
        records = stored[number]
        end = len(records) if asked.end is None else asked.end
        if asked.end_ms is not None:
            late = (i for i, it in enumerate(records) if it.time_ms >= asked.end_ms)
            end = next(late, len(records))
        for offset in range(asked.start or 0, end):
            record = records[offset]
            is_early = asked.start_ms is not None and record.time_ms < asked.start_ms
            wanted = not asked.subjects or any(matches(it, record.subject) for it in asked.subjects)
            if wanted and not is_early:
                found.append((number, offset))
    return found


def time_of(time_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)


def arguments(asked: Asked) -> dict[str, Any]:
    given: dict[str, Any] = {"subjects": asked.subjects, "batch_rows": asked.batch_rows}
    for name, offset, time_ms in (
        ("start", asked.start, asked.start_ms),
        ("end", asked.end, asked.end_ms),
    ):
        if offset is not None:
            given[name] = offset
        elif time_ms is not None:
            given[name] = time_of(time_ms)
    if asked.partitions is not None:
        given["partitions"] = asked.partitions
    return given


@settings(deadline=None)
@given(data=st.data(), stored=st.lists(RECORDS, min_size=1, max_size=3), cut=st.integers(1, 5))
def test_what_matches_comes_out_and_nothing_else(
    data: st.DataObject, stored: list[list[Stored]], cut: int
) -> None:
    asked = data.draw(reads([len(it) for it in stored]))
    with tempfile.TemporaryDirectory() as path:
        folder = DataFolder(Path(path))
        for number, records in enumerate(stored):
            made = [
                HandRecord(
                    b"v%d" % i,
                    None,
                    [] if it.subject is None else [(b"subject", it.subject.encode())],
                    timestamp_delta=it.time_ms - BASE_MS,
                )
                for i, it in enumerate(records)
            ]
            batches = [made[at : at + cut] for at in range(0, len(made), cut)]
            folder.segment(batches, partition=number)
        names = list(dict.fromkeys([*asked.columns, "partition", "offset", "value", "subject"]))
        reader = streamlog.arrow.read("orders", path=path, columns=names, **arguments(asked))
        assert reader.schema.names == names
        rows = reader.read_all().to_pylist()
        bare = streamlog.arrow.read("orders", path=path, columns=["value"], **arguments(asked))
        values = bare.read_all()["value"].to_pylist()
    assert [(row["partition"], row["offset"]) for row in rows] == expected(stored, asked)
    assert values == [b"v%d" % row["offset"] for row in rows]
    for row in rows:
        assert row["subject"] == stored[row["partition"]][row["offset"]].subject


@pytest.mark.parametrize("pattern", [">", "*", "a.*", "a.>", "c+.*", "*.*", "a"])
@given(subject=SUBJECTS)
def test_patterns_of_subjects_are_those_of_nats(pattern: str, subject: str) -> None:
    from streamlog.arrow.filters import subjects_regex

    assert bool(re.match(subjects_regex([pattern]).replace(r"\x{2b}", r"\+"), subject)) == matches(
        pattern, subject
    )
