"""The exit code of doctor is about the node that it examines, not about the rest of its cluster."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from streamlog.cli.doctor import command
from streamlog.cli.doctor.network import _of_this_node
from streamlog.findings import CLUSTER, NODE, Finding
from tests.in_process import streamlog

GONE = Finding(CLUSTER, "critical", "Node 3 at c:9092 is gone", "Start it")
BEHIND = Finding(CLUSTER, "warning", "1 partition is not in sync on every replica")
REFUSED = Finding("network", "critical", "voter 3: Connection refused")
SLOW = Finding("disk", "warning", "fdatasync takes 80 ms")
FINE = Finding("disk", "ok", "74 GiB are free")


@pytest.mark.parametrize(
    ("found", "code", "strict_code"),
    [
        ([FINE], 0, 0),
        ([FINE, GONE], 0, 0),
        ([BEHIND], 0, 0),
        ([GONE, REFUSED], 1, 1),
        ([SLOW, GONE], 0, 1),
        ([Finding(NODE, "critical", "Node 1: its disk is full")], 1, 1),
    ],
)
def test_only_findings_of_this_node_fail(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: list[Finding],
    code: int,
    strict_code: int,
) -> None:
    async def examine(*_: Any) -> AsyncIterator[Finding]:
        for finding in found:
            yield finding

    monkeypatch.setattr(command, "_examine", examine)
    config = tmp_path / "node.toml"
    config.write_text(f'[node]\ndata_dir = "{tmp_path}"\n')
    words = ["doctor", "--config", str(config)]
    done = streamlog(words)
    assert done.returncode == code
    assert all(it.what in done.stdout.decode() for it in found), "all are printed"
    assert streamlog([*words, "--strict"]).returncode == strict_code
    said = json.loads(streamlog([*words, "--json"]).stdout)
    assert said["well"] == (code == 0)
    assert len([it for it in said["findings"] if it["area"] != "configuration"]) == len(found)


def test_damage_that_a_node_reports_is_a_finding_of_it() -> None:
    class Node:
        def __init__(self, node_id: int, *unfit: str) -> None:
            self.node_id, self.unfit = node_id, unfit

    class Described:
        nodes = (Node(1, "lost_records", "nats"), Node(2, "damaged"))

    (found,) = _of_this_node(1, Described())  # type: ignore[arg-type]
    assert (found.area, found.severity) == (NODE, "critical")
    assert found.what.startswith("Node 1: it has lost records")


def test_a_file_that_a_start_refuses_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def examine(*_: Any) -> AsyncIterator[Finding]:
        yield Finding("limits", "critical", f"http.token_file: {absent}: No such file or directory")
        yield FINE

    absent = tmp_path / "absent"
    monkeypatch.setattr(command, "_examine", examine)
    config = tmp_path / "node.toml"
    config.write_text(f'[node]\ndata_dir = "{tmp_path}"\n[http]\ntoken_file = "{absent}"\n')
    done = streamlog(["doctor", "--config", str(config), "--json"])
    found = json.loads(done.stdout)["findings"]
    assert done.returncode == 1
    assert [it["area"] for it in found] == ["configuration", "disk"]
    assert found[0]["what"].startswith(f"http.token_file: {absent} has no token")
