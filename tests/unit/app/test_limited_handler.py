"""Lines that repeat themselves are counted, and reported in one line; none is lost unreported."""

import io
import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.app.logs import EVENTS_MAX, JsonLines, LimitedHandler
from streamlog.metadata.nodes.node_condition import PARTITION_OFFLINE


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("streamlog.test_limited_handler")
    found.propagate, found.level = False, logging.DEBUG
    yield found
    found.handlers.clear()
    found.propagate = True


def lines_of(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_a_handler_says_what_it_left_out_when_it_closes(logger: logging.Logger) -> None:
    output = io.StringIO()
    handler = LimitedHandler(output, window_s=3_600, lines_max=2)
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    for number in range(10_000):
        logger.error(PARTITION_OFFLINE, extra={"stream": "s", "partition": number})
        logger.debug("detail")
    logger.info("another")
    handler.close()
    found = [it for it in lines_of(output) if it["level"] != "debug"]
    assert [it["event"] for it in found] == [
        "partition offline", "partition offline", "another", "repeated: partition offline",
    ]  # fmt: skip
    assert found[-1]["count"] == 9_998
    assert found[-1]["level"] == "error"
    assert found[-1]["code"] == found[0]["code"] == PARTITION_OFFLINE.code
    assert found[-1]["remedy"] == found[0]["remedy"] == PARTITION_OFFLINE.remedy


def test_an_event_comes_back_where_nobody_runs_a_task(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("streamlog.app.logs.time", SimpleNamespace(monotonic=lambda: now))
    output = io.StringIO()
    handler = LimitedHandler(output, window_s=10, lines_max=1)
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


def test_events_beyond_the_limit_are_reported_together(logger: logging.Logger) -> None:
    output = io.StringIO()
    handler = LimitedHandler(output, lines_max=1)
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    for number in range(EVENTS_MAX):
        logger.info(str(number))
    logger.error("x")
    logger.info("y")
    handler.close()
    last = lines_of(output)[-1]
    assert (last["event"], last["level"], last["count"]) == ("repeated: other events", "error", 1)
