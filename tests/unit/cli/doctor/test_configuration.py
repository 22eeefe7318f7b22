"""Settings that contradict themselves, each with what to do."""

from pathlib import Path
from typing import Any

import pytest

from streamlog.cli.doctor.configuration import examine, voters_of
from streamlog.config import Settings, load_settings
from streamlog.findings import Finding

CONFIG = Path(__file__).parents[4] / "config"
THREE = ("1@node-1:9092", "2@node-2:9092", "3@node-3:9092")
SEVENTH = {"id": 7, "data_dir": "/d"}
FAR: dict[str, Any] = {"host": "10.0.0.1", "advertised_host": "node-1"}


def found(**sections: Any) -> list[Finding]:
    return examine(Settings(**{"node": {"data_dir": "/d"}, **sections}))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_we_ship_is_well(number: int) -> None:
    settings = load_settings(CONFIG / "three-nodes" / f"node-{number}.toml")
    assert [it for it in examine(settings) if it.severity in ("critical", "warning")] == []


def test_the_defaults_are_well() -> None:
    (finding,) = found()
    assert finding == Finding("configuration", "ok", "nothing contradicts itself")


@pytest.mark.parametrize(
    ("sections", "state", "said"),
    [
        ({"kafka": {"host": "0.0.0.0"}}, "critical", "no kafka.advertised_host"),
        ({"kafka": {"port": 9464}}, "critical", "are both 9464"),
        ({"http": {"host": "0.0.0.0", "show_payloads": "on"}}, "warning", "reads every stream"),
        ({"log": {"segment_bytes": 65536}}, "warning", "log.segment_bytes (65536) is less"),
        ({"log": {"sync": "os"}}, "note", "log.sync is os"),
        ({"nats": {"servers": ("nats://far:4222",), "token": "t"}}, "warning", "in the clear"),
        (
            {"replication": {"replica_lag_time_max_ms": 1000}},
            "warning",
            "no less than replication.replica_lag_time_max_ms",
        ),
        (
            {"cluster": {"voters": THREE}, "kafka": FAR},
            "critical",
            "cluster.id is missing",
        ),
        (
            {"cluster": {"id": "c", "voters": THREE}},
            "critical",
            "this node advertises '127.0.0.1', and other voters are on other machines",
        ),
        (
            {"cluster": {"id": "c", "voters": THREE[:2]}, "kafka": FAR},
            "warning",
            "there are 2 voters",
        ),
        (
            {"cluster": {"id": "c", "voters": THREE}, "kafka": {**FAR, "port": 9999}},
            "warning",
            "it listens on port 9999",
        ),
        (
            {
                "cluster": {"id": "c", "voters": ("1@node-1:9092", "2@node-1:9093", "9@node-2:1")},
                "kafka": FAR,
                "node": {"data_dir": "/d", "processes": 2},
            },
            "warning",
            "2 of 3 voters are nodes of this machine",
        ),
        (
            {"cluster": {"id": "c", "voters": THREE}, "kafka": FAR, "node": SEVENTH},
            "note",
            "this node is no voter",
        ),
    ],
)  # fmt: skip
def test_one_thing_is_wrong(sections: dict[str, Any], state: str, said: str) -> None:
    (finding,) = found(**sections)
    assert finding.severity == state
    assert said in finding.what
    assert finding.remedy or state == "note"


def test_no_secret_is_in_what_is_said() -> None:
    servers = ("nats://bob:hunter2@far:4222",)
    said = str(found(nats={"servers": servers, "token": "s3cret"}))
    assert "hunter2" not in said and "s3cret" not in said


def test_voters_that_cannot_be_read_are_left_to_the_node() -> None:
    cluster = {"id": "c", "voters": ("nonsense", "1@[::1]:9092", "2@x:y")}
    settings = Settings(node={"data_dir": "/d"}, cluster=cluster)
    assert voters_of(settings) == [(1, ("::1", 9092))]
