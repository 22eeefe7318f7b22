"""The nodes that one configuration stands for."""

import json
from pathlib import Path
from typing import Any

import pytest

from streamlog.config import (
    MachineNode,
    Settings,
    check_folders,
    load_nodes,
    mistakes_of,
    node_of,
    nodes_of,
)
from streamlog.errors import ConfigError

Sections = dict[str, Any]


def settings(processes: int = 3, **sections: dict[str, object]) -> Settings:
    content: Sections = {"node": {"data_dir": "/data", "id": 10}, "cluster": {"id": "c"}}
    for name, keys in sections.items():
        content[name] = {**content.get(name, {}), **keys}
    content["node"].setdefault("processes", processes)
    return Settings(**content)


def nodes(processes: int = 3, **sections: dict[str, object]) -> tuple[MachineNode, ...]:
    return nodes_of(settings(processes, **sections), "m1")


def mistakes(processes: int = 3, **sections: dict[str, object]) -> list[str]:
    return [str(it) for it in mistakes_of(settings(processes, **sections))]


def test_one_process_is_the_configuration_itself() -> None:
    alone = Settings(node={"data_dir": "/data"})
    assert nodes_of(alone) == (MachineNode(alone, None),)
    assert alone.node.rack is None


def test_nodes_have_the_next_ids_ports_and_folders() -> None:
    found = nodes(
        kafka={"port": 9092, "advertised_host": "node-1", "advertised_port": 19092},
        http={"port": 9464},
        nats_listen={"port": 4222, "advertised_port": 14222},
    )
    assert [it.settings.node.id for it in found] == [10, 11, 12]
    assert [str(it.settings.node.data_dir) for it in found] == [
        "/data", "/data/node-11", "/data/node-12",
    ]  # fmt: skip
    assert [it.settings.kafka.port for it in found] == [9092, 9093, 9094]
    assert [it.settings.kafka.advertised_port for it in found] == [19092, 19093, 19094]
    assert [it.settings.http.port for it in found] == [9464, 9465, 9466]
    assert [it.settings.nats_listen.port for it in found] == [4222, 4223, 4224]
    assert [it.settings.nats_listen.advertised_port for it in found] == [14222, 14223, 14224]
    assert {it.machine for it in found} == {10}
    assert {it.settings.node.rack for it in found} == {"m1"}
    assert {it.settings.kafka.advertised_host for it in found} == {"node-1"}


def test_ports_that_are_not_set_stay_so() -> None:
    found = nodes(http={"port": 0})
    assert {it.settings.http.port for it in found} == {0}
    assert {it.settings.nats_listen.port for it in found} == {None}
    assert {it.settings.kafka.advertised_port for it in found} == {None}


def test_a_configured_rack_holds() -> None:
    assert {it.settings.node.rack for it in nodes(node={"rack": "eu-1a"})} == {"eu-1a"}


def test_the_first_node_votes_where_no_voters_are_named() -> None:
    assert {it.settings.cluster.voters for it in nodes()} == {("10@127.0.0.1:9092",)}
    far = nodes(kafka={"host": "::", "advertised_host": "fd00::1", "advertised_port": 9})
    assert far[1].settings.cluster.voters == ("10@[fd00::1]:9",)
    named = ("10@n1:9092", "20@n2:9092")
    found = nodes(kafka={"advertised_host": "n1"}, cluster={"voters": named})
    assert {it.settings.cluster.voters for it in found} == {named}


def test_a_node_is_chosen_by_its_id() -> None:
    found = nodes()
    assert node_of(found, None) is found[0]
    assert node_of(found, 12) is found[2]
    with pytest.raises(ConfigError, match=r"--node: 13 is no node .* name one of 10, 11, 12"):
        node_of(found, 13)


def test_the_cluster_needs_a_name(tmp_path: Path) -> None:
    unnamed = Settings(node={"data_dir": str(tmp_path), "processes": 2})
    with pytest.raises(ConfigError, match=r"cluster.id: is missing.*on every machine$"):
        nodes_of(unnamed)
    (tmp_path / "node.json").write_text(json.dumps({"cluster_id": "abc"}))
    with pytest.raises(ConfigError, match=r"the folder of node 1 belongs to 'abc': take that"):
        nodes_of(unnamed)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"kafka": {"port": 0}}, "kafka.port: is 0"),
        ({"kafka": {"port": 65534}}, "kafka.port: is 65534"),
        ({"nats_listen": {"port": 65535}}, "nats_listen.port: is 65535"),
        ({"kafka": {"advertised_port": 65534}}, "kafka.advertised_port: is 65534"),
        ({"kafka": {"port": 9463}}, "http.port: is 9464, and kafka.port takes 9463 to 9465"),
        ({"http": {"port": 9094}}, "http.port: is 9094, and kafka.port takes 9092 to 9094"),
        ({"http": {"port": 9092}}, "9092, and"),
        ({"nats_listen": {"port": 9091}}, "kafka.port: is 9092, and nats_listen.port takes 9091"),
        ({"node": {"id": 2**31 - 2}}, "node.id: leaves no ids"),
    ],
)
def test_ports_and_ids_that_are_not_there(sections: Sections, said: str) -> None:
    (found,) = mistakes(**sections)
    assert said in found
    with pytest.raises(ConfigError):
        nodes(**sections)


def test_ports_next_to_each_other_are_enough() -> None:
    assert mistakes(http={"port": 9095}) == []
    assert mistakes(http={"port": 9089}) == []
    assert mistakes(kafka={"host": "10.0.0.1"}, http={"port": 9093}) == []
    assert len(mistakes(kafka={"host": "0.0.0.0"}, http={"port": 9093})) == 1


@pytest.mark.parametrize(
    ("voter", "said"),
    [
        ("11@n1:9093", None),
        ("13@n2:9092", None),
        ("11@n2:9092", "node 11 is at n1:9093"),
        ("12@n2:9092", "node 12 is at n1:9094"),
        ("13@n1:9093", "where node 11 of this machine is"),
        ("9@n1:9094", "where node 12 of this machine is"),
        ("9@n1:9095", None),
        ("nonsense", None),
    ],
)
def test_voters_whose_ids_two_machines_share(voter: str, said: str | None) -> None:
    found = mistakes(kafka={"advertised_host": "n1"}, cluster={"voters": ["10@n1:9092", voter]})
    assert [said] == [said for it in found if said and said in it] if said else found == []


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        nodes_of(Settings(node={"data_dir": "/d", "processes": 2}, kafka={"port": 0}))
    assert len(caught.value.more) == 1


def put(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "node.json").write_text("{}")


def test_a_folder_that_no_node_would_have_is_refused(tmp_path: Path) -> None:
    def of(processes: int) -> Settings:
        return settings(processes, node={"data_dir": str(tmp_path)})

    put(tmp_path / "node-11")
    put(tmp_path / "node-12")
    (tmp_path / "node-99").mkdir()  # of something else
    check_folders(of(3))
    with pytest.raises(ConfigError, match=r"is 2 \(nodes 10 to 11\), and .*node-12 has data"):
        check_folders(of(2))
    with pytest.raises(ConfigError, match=r"is 1 \(node 10\), and .*node-11 has data of node 11"):
        check_folders(of(1))
    put(tmp_path / "node-10")
    with pytest.raises(ConfigError, match=r"name .*node-10 as node.data_dir"):
        check_folders(of(3))


def test_the_environment_sets_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "node.toml"
    path.write_text('[node]\ndata_dir = "d"\n[cluster]\nid = "c"\n')
    monkeypatch.setenv("STREAMLOG_NODE__PROCESSES", "4")
    assert [it.settings.node.id for it in load_nodes(path)] == [1, 2, 3, 4]
