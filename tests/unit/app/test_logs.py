"""Log lines: one for each event, keys in order, no secrets."""

import io
import json
import logging
from typing import Literal

import pytest

from streamlog.app.logs import configure_logs
from streamlog.authn.session import Session
from streamlog.authz.audit import Audit

logger = logging.getLogger("streamlog.test")


def lines(output: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_acts_are_told_however_many_there_are(output: io.StringIO) -> None:
    configure_logs("json", "info", output)
    audit = Audit()
    for number in range(100):
        audit.acted(Session(), "CreateAcls", [f"rule {number}"])
    assert [it["resources"] for it in lines(output)] == [[f"rule {n}"] for n in range(100)]


def test_json_has_the_event_and_its_keys_in_order(output: io.StringIO) -> None:
    configure_logs("json", "info", output)
    logger.info("partition opened", extra={"bytes": 5, "offset": 7, "stream": "s", "partition": 0})
    (line,) = lines(output)
    assert list(line) == [
        *("time", "level", "logger", "event"),
        *("stream", "partition", "offset", "bytes"),
    ]
    assert (line["level"], line["event"], line["offset"]) == ("info", "partition opened", 7)
    assert str(line["time"]).endswith("Z")


def test_nodes_that_share_a_log_are_told_apart(output: io.StringIO) -> None:
    """Also where a line is about another node, and in the line that stands for many."""
    configure_logs("json", "info", output, node_id=12)
    logger.info("link open", extra={"node": 11})
    for _ in range(30):
        logger.info("again")
    for handler in logging.getLogger().handlers:
        handler.close()
    found = lines(output)
    assert {it["node_id"] for it in found} == {12}
    assert found[0]["node"] == 11
    assert found[-1]["event"] == "repeated: again"
    configure_logs("json", "info", output)
    logger.info("alone")
    assert "node_id" not in lines(output)[-1]


def test_a_traceback_stays_on_the_line(output: io.StringIO) -> None:
    configure_logs("json", "info", output)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception("it failed")
    (line,) = lines(output)
    assert "ValueError: two\nlines" in str(line["traceback"])


def test_console_is_one_line_with_quoted_values(output: io.StringIO) -> None:
    configure_logs("console", "info", output)
    logger.warning("odd\nevent", extra={"stream": "s", "reason": "a b\nc"})
    (line,) = output.getvalue().splitlines()
    assert line.endswith('warning odd\\nevent stream=s reason="a b\\nc"')


@pytest.mark.parametrize("format_name", ["json", "console"])
def test_secrets_are_hidden(output: io.StringIO, format_name: Literal["json", "console"]) -> None:
    configure_logs(format_name, "info", output)
    url = "nats://bob:hunter2@host:4222"
    logger.info(
        "trying %s", url, extra={"password": "hunter2", "servers": [url], "token": "hunter2"}
    )
    try:
        raise OSError(url)
    except OSError:
        logger.exception("failed")
    assert "hunter2" not in output.getvalue()
    assert output.getvalue().count("***@host:4222") == 3


def test_the_level_holds(output: io.StringIO) -> None:
    configure_logs("json", "warning", output)
    logger.info("small talk")
    assert not output.getvalue()
