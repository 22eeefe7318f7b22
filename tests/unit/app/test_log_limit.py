"""What repeats itself is counted, and said in one line; nothing is left out unsaid."""

import io
import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.app.log_limit import EVENTS_MAX, LogLimit
from streamlog.app.logs import JsonLines, LimitedHandler

KEY = ("a", "event")


def test_so_many_lines_and_then_a_number() -> None:
    limit = LogLimit(window_s=10, lines_max=3)
    admitted = [limit.admit(KEY, 30, second) for second in range(8)]
    assert admitted == [True] * 3 + [False] * 5
    assert limit.due(9) == []
    (summary,) = limit.due(10)
    assert (summary.key, summary.level, summary.count, summary.seconds) == (KEY, 30, 5, 10)
    assert limit.due(11) == []
    assert limit.admit(KEY, 30, 11), "another window"


def test_events_do_not_count_for_each_other() -> None:
    limit = LogLimit(lines_max=1)
    assert limit.admit(("a", "one"), 30, 0)
    assert limit.admit(("a", "two"), 30, 0)
    assert limit.admit(("b", "one"), 30, 0)
    assert not limit.admit(("b", "one"), 30, 0)


def test_there_is_a_limit_to_how_many_are_told_apart() -> None:
    limit = LogLimit(lines_max=1)
    for number in range(EVENTS_MAX):
        assert limit.admit(("a", str(number)), 20, 0)
    assert limit.admit(("a", "x"), 40, 0)
    assert not limit.admit(("a", "y"), 20, 0)
    (summary,) = limit.due(1e9)
    assert (summary.key[1], summary.level, summary.count) == ("other events", 40, 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5))), st.integers(1, 4))
def test_each_is_written_or_counted(lines: list[tuple[int, float]], lines_max: int) -> None:
    limit, now, written, counted = LogLimit(window_s=7, lines_max=lines_max), 0.0, 0, 0
    for event, pause in lines:
        now += pause
        counted += sum(it.count for it in limit.due(now))
        written += limit.admit(("a", str(event)), 30, now)
    counted += sum(it.count for it in limit.due(now, all_of_them=True))
    assert written + counted == len(lines)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("streamlog.test_log_limit")
    found.propagate, found.level = False, logging.DEBUG
    yield found
    found.handlers.clear()
    found.propagate = True


def lines_of(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_a_handler_says_what_it_left_out_when_it_closes(logger: logging.Logger) -> None:
    output = io.StringIO()
    handler = LimitedHandler(output, LogLimit(lines_max=2))
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    for number in range(10_000):
        logger.error("partition offline", extra={"stream": "s", "partition": number})
        logger.debug("detail")
    logger.info("another")
    handler.close()
    found = [it for it in lines_of(output) if it["level"] != "debug"]
    assert [it["event"] for it in found] == [
        "partition offline", "partition offline", "another", "repeated: partition offline",
    ]  # fmt: skip
    assert found[-1]["count"] == 9_998
    assert found[-1]["level"] == "error"
    assert found[-1]["remedy"] == found[0]["remedy"] != ""


def test_an_event_comes_back_where_nobody_runs_a_task(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("streamlog.app.logs.time", SimpleNamespace(monotonic=lambda: now))
    output = io.StringIO()
    handler = LimitedHandler(output, LogLimit(window_s=10, lines_max=1))
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    for second in (0, 1, 2, 30):
        now = 100.0 + second
        logger.warning("log failed")
    found = lines_of(output)
    assert [it["event"] for it in found] == ["log failed", "repeated: log failed", "log failed"]
    assert found[1]["count"] == 2
    handler.close()


def test_a_remedy_of_the_caller_s_own_is_kept(logger: logging.Logger) -> None:
    output = io.StringIO()
    handler = LimitedHandler(output)
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    logger.warning("waiting for NATS", extra={"remedy": "pay the bill"})
    logger.warning("stopping at once")
    logger.info("partition offline")
    first, nothing, info = lines_of(output)
    assert first["remedy"] == "pay the bill"
    assert "remedy" not in nothing and "remedy" not in info
    handler.close()
