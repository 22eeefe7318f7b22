"""``streamlog explain``."""

import json

import pytest

from streamlog.cli.explain import _declarations
from tests.in_process import streamlog


@pytest.mark.parametrize("what", ["SL-0301", "sl-0301", "0301", "Disk full"])
def test_a_code_is_explained(what: str) -> None:
    done = streamlog(["explain", what])
    text = done.stdout.decode()
    assert done.returncode == 0
    assert text.startswith("SL-0301  disk full (critical)\n")
    assert "What to do: make room" in text
    assert "Runbook: docs/runbooks/full-disk.md" in text


def test_the_words_of_a_log_line_find_its_code() -> None:
    done = streamlog(["explain", "waiting for NATS", "--json"])
    (found,) = json.loads(done.stdout)
    assert found["code"] == "SL-0401"
    assert "waiting for NATS" in found["events"]


def test_all_are_listed() -> None:
    done = streamlog(["explain", "--json"])
    codes = [it["code"] for it in json.loads(done.stdout)]
    assert codes == sorted(codes) and len(codes) > 150
    assert codes[0].encode() in streamlog(["explain"]).stdout


@pytest.mark.parametrize("what", ["SL-9999", "nothing of the kind"])
def test_what_there_is_not_is_an_error(what: str) -> None:
    done = streamlog(["explain", what])
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"streamlog: no condition is called {what!r}; `streamlog explain` lists all\n"
    )


def test_a_declaration_is_read_with_its_constants() -> None:
    text = """A: Final = Condition("SL-9999", "one " "thing", "wait; " + REPAIR_DISK, severity=CRITICAL)"""
    ((name, condition),) = _declarations(text)
    assert (name, condition.title, condition.severity) == ("A", "one thing", "critical")
    assert condition.remedy.startswith("wait; look at the disk")


def test_a_declaration_that_must_be_run_is_refused() -> None:
    with pytest.raises(ValueError, match="is declared by"):
        list(_declarations('A: Final = Condition("SL-9999", title(), "wait")'))
