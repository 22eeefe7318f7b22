"""What malformed requests leave in the log: a line a second, of no alarm, without a traceback."""

import logging

import pytest
from aiohttp.http_exceptions import BadStatusLine, TransferEncodingError

from streamlog.http.server import MALFORMED, MalformedRequests, logger

SENT = "GET \x1b[31m\n\n    ^"


def told(limit: MalformedRequests, error: Exception) -> logging.LogRecord | None:
    """As aiohttp tells it."""
    record = logger.makeRecord(
        logger.name, logging.ERROR, "f", 1, "Error handling request from %s", ("10.0.0.1",),
        (type(error), error, None),
    )  # fmt: skip
    return record if limit.filter(record) else None


def test_a_flood_is_one_line_a_second_with_how_many_there_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger.name)
    now_s = 100.0
    limit = MalformedRequests(now_s=lambda: now_s)
    first = told(limit, BadStatusLine(SENT))
    assert first is not None
    assert (first.levelno, first.getMessage(), first.exc_info) == (logging.INFO, MALFORMED, None)
    assert vars(first)["peer"] == "10.0.0.1"
    assert "\n" not in vars(first)["problem"]
    for _ in range(999):
        assert told(limit, TransferEncodingError("no size")) is None
    now_s += 1
    next_one = told(limit, BadStatusLine(SENT))
    assert next_one is not None
    assert vars(next_one)["more_of_these"] == 999


def test_who_wants_warnings_alone_is_told_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger.name)
    assert told(MalformedRequests(), BadStatusLine(SENT)) is None


def test_errors_of_handlers_stay_errors() -> None:
    record = told(MalformedRequests(), ValueError("a fault of the node's own"))
    assert record is not None
    assert record.levelno == logging.ERROR
    assert record.exc_info
