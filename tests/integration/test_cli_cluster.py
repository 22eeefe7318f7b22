"""``streamlog dev --nodes 3``, and the commands that look at a cluster and change it."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog.metadata.image.feature_level import LEVEL_MAX
from tests.cluster_cli import Cli
from tools.nodes.server_process import ServerProcess, program, wait_until

# Looking


def test_the_ready_file_has_every_node(trio: Any) -> None:
    nodes = trio.addresses["nodes"]
    assert [node["id"] for node in nodes] == [1, 2, 3]
    assert len({node["kafka"] for node in nodes} | {node["http"] for node in nodes}) == 6
    for node in nodes:
        assert Path(node["config"]).parent == trio.data_dir / f"node-{node['id']}"
        os.kill(node["pid"], 0)
        assert node["kafka"] in trio.log_text()


def test_the_nodes_and_the_quorum(cli: Cli, trio: Any) -> None:
    kafka = {node["id"]: node["kafka"] for node in trio.addresses["nodes"]}
    nodes = cli.json("cluster nodes")
    assert {it["node_id"]: f"{it['host']}:{it['port']}" for it in nodes} == kafka
    assert [(it["fenced"], it["draining"], it["voter"]) for it in nodes] == [
        (False, False, True)
    ] * 3
    quorum = cli.json("cluster quorum")
    assert quorum["controller"] in kafka
    assert {it["node_id"]: f"{it['host']}:{it['port']}" for it in quorum["voters"]} == kafka
    assert {it["node_id"] for it in quorum["replicas"]} == set(kafka)
    table = cli.ok("cluster nodes")
    assert table.count("live") == 3
    assert "controller" in cli.ok("cluster quorum")


def test_each_voter_is_known_by_the_folder_that_it_has(cli: Cli) -> None:
    def folders(of: str) -> set[tuple[int, str | None]]:
        return {(it["node_id"], it["directory_id"]) for it in cli.json("cluster quorum")[of]}

    wait_until(lambda: folders("replicas") == folders("voters"), "another folder")
    assert None not in {folder for _, folder in folders("replicas")}


def test_a_new_cluster_is_at_the_newest_level(cli: Cli) -> None:
    wait_until(lambda: None not in cli.json("cluster features ls")["nodes"].values(), "the levels")
    features = cli.json("cluster features ls")
    assert features["level"] == features["level_max"] == LEVEL_MAX
    assert set(features["nodes"]) == {"1", "2", "3"}
    assert f"{LEVEL_MAX} already" in cli.ok("cluster features upgrade --yes")
    assert f"1 to {LEVEL_MAX}, not 99" in cli.refused("cluster features upgrade --level 99 --yes")


def test_any_node_answers(cli: Cli, trio: Any) -> None:
    for node in trio.addresses["nodes"]:
        assert len(cli.json("cluster nodes", "--bootstrap-server", node["kafka"])) == 3
    assert len(cli.json("cluster nodes", "--bootstrap-server", f"127.0.0.1:1,{cli.servers}")) == 3


def test_a_cluster_that_is_not_there(cli: Cli) -> None:
    for command in ("info", "nodes", "quorum", "check"):
        said = cli.refused(f"cluster {command}", "--bootstrap-server", "127.0.0.1:1")
        assert "Connection refused" in said


def test_a_stream_is_described_with_its_replicas(cli: Cli) -> None:
    cli.ok("stream add kept --replicas 3 --partitions 2")
    details = cli.json("stream info kept")
    assert (details["config"]["replicas"], details["config"]["min_isr"]) == (3, 2)
    for number, partition in enumerate(details["partitions"]):
        assert partition["partition"] == number
        assert set(partition["replicas"]) == {1, 2, 3}
        assert {int(it) for it in partition["replica_lags"]} == {1, 2, 3} - {partition["leader"]}
    assert len({it["leader"] for it in details["partitions"]}) == 2
    assert "node-" not in cli.ok("stream info kept").splitlines()[0]
    assert cli.ok("cluster check --wait --timeout 30").startswith("every node is alive")


# Leaders


def test_another_replica_leads(cli: Cli) -> None:
    cli.ok("stream add led --replicas 3")
    before = cli.partition("led")
    other = next(node for node in before["replicas"] if node != before["leader"])
    said = cli.ok(f"cluster elect-leader led 0 --leader {other}")
    assert said == f"node {other} leads led/0 in epoch {before['leader_epoch'] + 1}\n"
    cli.wait_partition("led", leader=other)
    cli.ok("cluster rebalance")
    cli.wait_partition("led", leader=before["replicas"][0])


def test_elections_that_cannot_be(cli: Cli) -> None:
    cli.ok("stream add single")
    (only,) = cli.partition("single")["replicas"]
    other = only % 3 + 1
    assert "has no replica" in cli.refused(f"cluster elect-leader single 0 --leader {other}")
    assert "single" in cli.refused("cluster elect-leader single 7")
    assert "absent" in cli.refused("cluster elect-leader absent 0")


def test_an_unclean_election_asks_first(cli: Cli) -> None:
    cli.ok("stream add asked --replicas 3")
    done = cli.run("cluster elect-leader asked 0 --unclean")
    assert done.code == 1
    assert "for ever?" in done.err
    assert cli.run("cluster elect-leader asked 0 --unclean --yes").code == 0


# Moves


def test_a_partition_moves(cli: Cli) -> None:
    cli.ok("stream add moved --subject moved")
    cli.ok("publish moved x --count 100 --ack")
    (source,) = cli.partition("moved")["replicas"]
    target = source % 3 + 1
    said = cli.ok(f"stream move moved 0 {target} --wait --timeout 30")
    assert said == f"moved/0 is kept by {target}\n"
    cli.wait_partition("moved", leader=target, replicas=[target], isr=[target])
    assert cli.json("publish moved x --ack")["last_offset"] == 100
    assert cli.ok("consume moved --count 101") == "x\n" * 101


def test_moves_that_cannot_be(cli: Cli) -> None:
    cli.ok("stream add stays --replicas 2")
    assert "3 replicas named" in cli.refused("stream move stays 0 1,2,3")
    assert "no node 9" in cli.refused("stream move stays 0 1,9")
    assert "NODES" in cli.refused("stream move stays 0 one", code=2)
    assert "not being moved" in cli.refused("stream cancel-move stays 0")


def test_replicas_and_partitions_grow(cli: Cli) -> None:
    cli.ok("stream add grows --subject grows")
    cli.ok("publish grows x --count 10 --ack")
    cli.ok("stream edit grows --replicas 3 --partitions 4")
    assert cli.json("stream info grows")["config"]["min_isr"] == 2
    cli.ok("cluster check --wait --timeout 30")
    for number in range(4):
        assert sorted(cli.partition("grows", number)["isr"]) == [1, 2, 3]
    cli.ok("stream edit grows --replicas 1")
    wait_until(lambda: len(cli.partition("grows")["replicas"]) == 1, "it keeps its replicas")
    assert cli.ok("consume grows --partition 0 --count 10") == "x\n" * 10
    assert "5 asked for" in cli.refused("stream edit grows --replicas 5")
    assert "fewer" in cli.refused("stream edit grows --partitions 1")
    assert "--min-isr" in cli.refused("stream add wrong --replicas 2 --min-isr 3")


def test_a_drained_node_keeps_nothing(cli: Cli) -> None:
    for name in ("wide", "kept", "led", "asked"):  # three replicas have nowhere to go
        cli.run(f"stream rm {name} --yes")
    cli.ok("stream add drained --replicas 2 --partitions 6")
    cli.ok("cluster drain 2 --wait --timeout 30")
    nodes = {it["node_id"]: it for it in cli.json("cluster nodes")}
    assert (nodes[2]["draining"], nodes[2]["replicas"]) == (True, 0)
    assert "live, draining" in cli.ok("cluster nodes")
    assert "2 nodes" in cli.refused("stream add wide --replicas 3")
    cli.ok("cluster drain 2 --undo")
    cli.ok("stream add wide --replicas 3")
    assert "without node 2" in cli.refused("cluster drain 2")
    cli.ok("stream rm wide --yes")
    assert "no node 9" in cli.refused("cluster drain 9")


# The quorum


def test_another_voter_is_the_controller(cli: Cli) -> None:
    before = cli.json("cluster quorum")["controller"]
    wanted = before % 3 + 1
    assert cli.ok(f"cluster transfer-controller {wanted}") == f"the controller is node {wanted}\n"
    cli.ok("cluster transfer-controller")
    assert cli.json("cluster quorum")["controller"] != wanted
    assert "not a voter" in cli.refused("cluster transfer-controller 9")


def test_a_node_votes_no_longer_and_again(cli: Cli) -> None:
    controller = cli.json("cluster quorum")["controller"]
    node = controller % 3 + 1
    assert re.search("is a voter|drain it first", cli.refused(f"cluster remove-node {node} --yes"))
    cli.ok(f"cluster remove-voter {node} --yes")
    assert "not a voter" in cli.refused(f"cluster remove-voter {node} --yes")
    quorum = cli.json("cluster quorum")
    assert node not in {it["node_id"] for it in quorum["voters"]}
    wait_until(
        lambda: node in {it["node_id"] for it in cli.json("cluster quorum")["replicas"]},
        "it does not follow as an observer",
    )
    assert "observer" in cli.ok("cluster quorum")
    wait_until(lambda: cli.run(f"cluster add-voter {node}").code == 0, "it cannot vote again")
    assert len(cli.json("cluster quorum")["voters"]) == 3


# What befalls nodes


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Path], ServerProcess]]:
    """``streamlog serve --config`` by hand."""
    started: list[ServerProcess] = []

    def start(config: Path) -> ServerProcess:
        command = [program("streamlog"), "serve", "--config", str(config)]
        started.append(ServerProcess(command, tmp_path / "serve.log"))
        started[-1].spawn()
        return started[-1]

    yield start
    for process in started:
        if process.is_running():
            process.stop()


def found_by(cli: Cli) -> set[str]:
    """Nothing while there is no controller to ask."""
    out = cli.run("cluster check --json").out
    findings = json.loads(out)["findings"] if out else []
    return {line for it in findings for line in it["details"] or [it["what"]]}


def test_a_killed_node_is_found_missing_until_it_is_back(
    new_dev: Callable[..., Any], serve: Callable[[Path], ServerProcess]
) -> None:
    trio = new_dev("--nodes", "3")
    trio.start()
    cli = Cli(trio)
    cli.ok("stream add lives --replicas 3 --subject lives")
    victim = trio.addresses["nodes"][1]
    os.kill(victim["pid"], signal.SIGKILL)
    restart = f"streamlog serve --config {victim['config']}"
    wait_until(lambda: f"start it again with: {restart}" in trio.log_text(), "nothing is reported")
    # Until then a new controller, if node 2 was it, may say that it has not heard of the node yet.
    host, _, port = victim["kafka"].rpartition(":")
    gone = f"Node 2 at {host}:{port} is gone"
    missed = {gone, "lives/0 is not in sync on node 2"}
    wait_until(lambda: missed <= found_by(cli), "it is not missed")
    assert cli.run("cluster check").code == 1
    assert cli.json("publish lives x --ack")["published"] == 1

    done = cli.run("cluster check --wait --timeout 0.5")
    assert done.code == 1
    assert "waiting: " in done.err
    serve(Path(victim["config"]))
    assert cli.ok("cluster check --wait --timeout 30").startswith("every node is alive")


def test_a_survivor_of_three_goes_on_alone_and_is_joined_again(
    new_dev: Callable[..., Any], serve: Callable[[Path], ServerProcess]
) -> None:
    """Two disks of three are lost: what the third one keeps is there, and is kept thrice again."""
    trio = new_dev("--nodes", "3")
    trio.start()
    cli = Cli(trio)
    cli.ok("stream add rescued --replicas 3 --subject rescued")
    cli.ok("publish rescued x --count 10 --ack")
    cli.ok("cluster check --wait --timeout 30")
    nodes = trio.addresses["nodes"]
    configs = [Path(node["config"]) for node in nodes]
    for node in nodes:
        os.kill(node["pid"], signal.SIGKILL)
    wait_until(lambda: trio.log_text().count("killed by SIGKILL") == 3, "they live on")

    voters = f"1@{nodes[0]['kafka']}"
    for config in configs:
        text = re.sub(r"voters = \[.*?\]", f'voters = ["{voters}"]', config.read_text(), flags=re.S)
        config.write_text(text)
    for config in configs[1:]:
        for path in config.parent.iterdir():
            if path != config:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "lost" in cli.run(f"cluster recover-quorum --config {configs[0]}").err
    cli.ok(f"cluster recover-quorum --config {configs[0]} --yes")
    for config in configs:
        serve(config)
    cli.ok("cluster check --wait --timeout 60")
    assert cli.json("publish rescued x --ack")["last_offset"] == 10
    assert cli.ok("consume rescued --count 11") == "x\n" * 11
    assert [it["node_id"] for it in cli.json("cluster quorum")["voters"]] == [1]
    for node in (2, 3):
        cli.ok(f"cluster add-voter {node}")
    assert {it["node_id"] for it in cli.json("cluster quorum")["voters"]} == {1, 2, 3}


def test_it_starts_again_where_it_was(new_dev: Callable[..., Any]) -> None:
    trio = new_dev("--nodes", "3")
    trio.start()
    cli = Cli(trio)
    cli.ok("stream add again --replicas 3 --subject again")
    cli.ok("publish again x --count 10 --ack")
    assert trio.stop(20) == 0, "a stop waits for its time-outs"
    trio.start()
    assert Cli(trio).servers == cli.servers
    cli = Cli(trio)
    cli.ok("cluster check --wait --timeout 30")
    assert cli.json("publish again x --ack")["last_offset"] == 10
    assert cli.ok("consume again --count 11") == "x\n" * 11
    assert trio.stop(60) == 0

    for nodes in ("1", "5"):
        other = subprocess.run(
            [*trio.command, "--nodes", nodes], capture_output=True, text=True, check=False
        )
        assert other.returncode == 2
        assert "--nodes: " in other.stderr
        assert "holds a cluster of 3 nodes" in other.stderr
