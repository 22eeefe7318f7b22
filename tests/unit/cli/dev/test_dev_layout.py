"""The nodes of a development cluster: who listens where, at each start."""

from collections.abc import Callable
from pathlib import Path

import pytest

from streamlog.cli.dev.dev_cluster import without_login
from streamlog.cli.dev.dev_layout import DevPlan, Ports, lay_out
from streamlog.cli.dev.dev_node import DevNode
from streamlog.config import load_settings
from streamlog.errors import ConfigError
from streamlog.metadata.quorum.voter_sets import configured_voters

HOST = "127.0.0.1"


def plan(
    directory: Path,
    nodes: int,
    *,
    nats_server: bool = False,
    nats_port: int = 0,
    kafka_port: int = 0,
    http_port: int = 0,
) -> DevPlan:
    return DevPlan(directory, nodes, None, nats_server, nats_port, kafka_port, http_port)


def written(nodes: list[DevNode]) -> list[DevNode]:
    for node in nodes:
        node.write_config("nats://127.0.0.1:4222", is_ours=True)
    return nodes


def refused(wanted: DevPlan) -> str:
    with pytest.raises(ConfigError) as caught:
        lay_out(wanted, Ports())
    return str(caught.value)


def consecutive(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        first = Ports().settle("--x", HOST, 0)
        try:
            for i in range(1, count):
                Ports().settle("--x", HOST, first + i)
        except ConfigError:
            continue
        return first


def test_one_node_needs_no_quorum(tmp_path: Path) -> None:
    (node,) = written(lay_out(plan(tmp_path, 1), Ports()))
    settings = load_settings(node.config)
    assert settings.cluster.voters == ()
    assert settings.cluster.id is None


@pytest.mark.parametrize("count", [2, 3, 5])
def test_several_vote_and_name_the_same_voters(tmp_path: Path, count: int) -> None:
    nodes = written(lay_out(plan(tmp_path, count), Ports()))
    files = [load_settings(node.config) for node in nodes]
    assert [settings.node.id for settings in files] == list(range(1, count + 1))
    assert len({settings.node.data_dir for settings in files}) == count
    (cluster,) = {(settings.cluster.id, settings.cluster.voters) for settings in files}
    assert cluster[0] == "dev"
    voters = configured_voters(cluster[1]).by_id
    assert {number: voter.port for number, voter in voters.items()} == {
        settings.node.id: settings.kafka.port for settings in files
    }


def test_named_ports_follow_each_other(tmp_path: Path) -> None:
    first = consecutive(9)
    ports = Ports()
    wanted = plan(tmp_path, 3, kafka_port=first, http_port=first + 3, nats_port=first + 6)
    nodes = lay_out(wanted, ports)
    assert [node.kafka for node in nodes] == [f"{HOST}:{first + i}" for i in range(3)]
    assert [node.http for node in nodes] == [f"http://{HOST}:{first + 3 + i}" for i in range(3)]
    assert [node.nats for node in nodes] == [f"nats://{HOST}:{first + 6 + i}" for i in range(3)]
    assert ports.taken == set(range(first, first + 9))


def test_a_nats_server_has_the_first_of_its_ports(tmp_path: Path) -> None:
    first = consecutive(3)
    nodes = lay_out(plan(tmp_path, 2, nats_server=True, nats_port=first), Ports())
    assert [node.nats for node in nodes] == [f"nats://{HOST}:{first + 1 + i}" for i in range(2)]


def test_nothing_is_written_before_all_is_settled(tmp_path: Path) -> None:
    first = consecutive(2)
    ports = Ports()
    ports.taken.add(first + 1)
    with pytest.raises(ConfigError, match=f"^--kafka-port: port {first + 1} is in use"):
        lay_out(plan(tmp_path, 2, kafka_port=first), ports)
    lay_out(plan(tmp_path, 2), Ports())
    assert list(tmp_path.iterdir()) == []


def test_free_ports_are_the_same_at_the_next_start(tmp_path: Path) -> None:
    before = [node.kafka for node in written(lay_out(plan(tmp_path, 3), Ports()))]
    again = [node.kafka for node in lay_out(plan(tmp_path, 3), Ports())]
    assert again == before


@pytest.mark.parametrize(("there", "asked"), [(1, 3), (3, 1), (3, 5)])
def test_another_number_of_nodes_is_refused(tmp_path: Path, there: int, asked: int) -> None:
    written(lay_out(plan(tmp_path, there), Ports()))
    said = refused(plan(tmp_path, asked))
    assert said.startswith(f"--nodes: {tmp_path} holds a cluster of {there} node")
    assert said.endswith(f"not of {asked}; say --nodes {there} or name another folder")


def test_other_ports_would_break_the_quorum(tmp_path: Path) -> None:
    written(lay_out(plan(tmp_path, 3), Ports()))
    assert refused(plan(tmp_path, 3, kafka_port=consecutive(3))).startswith("--kafka-port: ")


def test_a_single_node_may_listen_elsewhere(tmp_path: Path) -> None:
    written(lay_out(plan(tmp_path, 1), Ports()))
    port = consecutive(1)
    (node,) = lay_out(plan(tmp_path, 1, kafka_port=port), Ports())
    assert node.kafka == f"{HOST}:{port}"


def break_toml(config: Path) -> None:
    config.write_text("[kafka\n")


def break_type(config: Path) -> None:
    config.write_text("[kafka]\nport = []\n")


@pytest.mark.parametrize("spoil", [break_toml, break_type])
def test_a_file_that_is_spoilt_is_named(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    nodes = written(lay_out(plan(tmp_path, 2), Ports()))
    spoil(nodes[1].config)
    assert refused(plan(tmp_path, 2)).startswith(f"--data-dir: {nodes[1].config} cannot be")


def test_a_login_in_the_address_of_nats_is_for_the_environment_of_nodes() -> None:
    address, variables = without_login("nats://me:s3cret@a:1")
    assert address == "nats://a:1"
    assert variables == {"STREAMLOG_NATS__USER": "me", "STREAMLOG_NATS__PASSWORD": "s3cret"}
    assert without_login("nats://s3cret@a:1") == (
        "nats://a:1", {"STREAMLOG_NATS__TOKEN": "s3cret"},
    )  # fmt: skip
    assert without_login("nats://a:1") == ("nats://a:1", {})
