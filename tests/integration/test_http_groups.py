"""Consumer groups by the JSON API of three nodes: whichever is asked, the group's coordinator answers."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.http_api import ask
from tests.integration.conftest import read_stream
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import wait_until

COUNT = 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A stream of two partitions, ten records in each."""
    settings: dict[str, dict[str, Any]] = {
        "groups": {"offsets_partitions": 3, "initial_rebalance_delay_ms": 100},
        "http": {"api_writes": True},
        "log": {"sync": "os"},
    }
    with Cluster(tmp_path_factory.mktemp("http-groups"), settings=settings) as cluster:
        config = {"name": "orders", "partitions": 2, "replicas": 3}
        made = ask(cluster[1], "POST", "/streams", {"config": config})
        assert made.status == 200, made
        producer = Producer({"bootstrap.servers": cluster.servers})
        for number in range(COUNT):
            for partition in (0, 1):
                producer.produce("orders", f"{number}", partition=partition)
        assert producer.flush(30) == 0
        yield cluster


def consumer(cluster: Cluster, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.servers,
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
        }
    )


def commit(cluster: Cluster, group: str, *offsets: int) -> None:
    """Of partitions from 0 on."""
    member = consumer(cluster, group)
    places = [TopicPartition("orders", number, it) for number, it in enumerate(offsets)]
    member.commit(offsets=places, asynchronous=False)
    member.close()


def committed(node: NodeProcess, group: str) -> dict[int, int]:
    found = ask(node, "GET", f"/groups/{group}")
    assert found.status == 200, found
    return {it["partition"]: it["committed_offset"] for it in found.content["partitions"]}


def test_every_node_lists_and_describes_groups_wherever_their_coordinator_is(
    cluster: Cluster,
) -> None:
    names = [f"g{number}" for number in range(6)]
    for name in names:
        commit(cluster, name, 4, 10)
    coordinators = set()
    for node in cluster.nodes.values():
        listed = ask(node, "GET", "/groups?limit=1000").content
        assert {it["group"] for it in listed["groups"]} >= set(names)
        assert listed["missing_nodes"] == []
        page = ask(node, "GET", "/groups?limit=2&offset=1").content
        assert [it["group"] for it in page["groups"]] == ["g1", "g2"] and page["total"] >= 6
        for name in names:
            found = ask(node, "GET", f"/groups/{name}").content
            coordinators.add(found["coordinator"])
            assert (found["state"], found["lag"]) == ("Empty", 6)
            assert [it["lag"] for it in found["partitions"]] == [6, 0]
    assert len(coordinators) > 1, "the test asks one coordinator alone"
    node = cluster[1]
    assert ask(node, "GET", "/groups/missed").code == "GroupNotFound"
    assert ask(node, "GET", "/groups?limit=1001").status == 400
    assert ask(node, "GET", "/groups?state=stable&limit=9").content["groups"] == []


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"to_earliest": True}, {0: 0, 1: 0}),
        ({"to_latest": True}, {0: 10, 1: 10}),
        ({"to_offset": 7}, {0: 7, 1: 7}),
        ({"shift_by": -3}, {0: 1, 1: 5}),
        ({"shift_by": 99}, {0: 10, 1: 10}),
        ({"to_ms": 0}, {0: 0, 1: 0}),
        ({"to_ms": int(time.time() * 1000) + 3_600_000}, {0: 10, 1: 10}),
        ({"to_offset": 7, "streams": ["orders"], "partitions": [1]}, {0: 4, 1: 7}),
    ],
)
def test_an_empty_group_goes_on_where_it_is_set(
    cluster: Cluster, target: dict[str, object], expected: dict[int, int]
) -> None:
    group = "reset"
    commit(cluster, group, 4, 8)
    for node in cluster.nodes.values():
        plan = ask(node, "POST", f"/groups/{group}/reset", {**target, "validate_only": True})
        assert plan.status == 200 and plan.content["changed"] is False, plan
        assert committed(node, group) == {0: 4, 1: 8}
    done = ask(cluster[2], "POST", f"/groups/{group}/reset", target)
    assert done.content == {**plan.content, "changed": True}
    assert committed(cluster[3], group) == expected


def test_a_reset_that_cannot_be_changes_nothing(cluster: Cluster) -> None:
    node, group = cluster[1], "steady"
    commit(cluster, group, 4, 8)
    for target, status in (
        ({}, 400),
        ({"to_earliest": True, "to_latest": True}, 400),
        ({"to_offset": 11}, 400),
        ({"to_offset": 1, "partitions": [0]}, 400),
        ({"to_offset": 1, "streams": ["orders"], "partitions": [2]}, 404),
        ({"to_offset": 1, "streams": ["orders", "missed"]}, 404),
    ):
        refused = ask(node, "POST", f"/groups/{group}/reset", target)
        assert refused.status == status, refused
    assert ask(node, "POST", "/groups/missed/reset", {"to_latest": True}).code == "GroupNotFound"
    assert committed(node, group) == {0: 4, 1: 8}
    made = ask(node, "POST", "/groups/fresh/reset", {"to_latest": True, "streams": ["orders"]})
    assert made.status == 200 and committed(node, "fresh") == {0: 10, 1: 10}


def test_a_group_with_members_is_neither_reset_nor_deleted(cluster: Cluster) -> None:
    member = consumer(cluster, "busy")
    member.subscribe(["orders"])
    try:
        deadline = time.monotonic() + 60
        while not member.assignment():
            member.poll(0.1)
            assert time.monotonic() < deadline, "no partition was assigned"
        for node in cluster.nodes.values():
            found = ask(node, "GET", "/groups/busy").content
            assert found["state"] == "Stable"
            assert found["members"][0]["partitions"] == [
                {"stream": "orders", "partition": number} for number in (0, 1)
            ]
            assert {it["member_id"] for it in found["partitions"]} == {
                found["members"][0]["member_id"]
            }
            target, orders = {"to_earliest": True, "streams": ["orders"]}, {"stream": "orders"}
            assert ask(node, "POST", "/groups/busy/reset", target).code == "GroupNotEmpty"
            assert ask(node, "DELETE", "/groups/busy").code == "GroupNotEmpty"
            forgotten = ask(node, "POST", "/groups/busy/offsets/delete", {"offsets": [orders]})
            assert [it["error"] for it in forgotten.content] == ["GroupSubscribed"] * 2
    finally:
        member.close()


def test_what_is_wrong_is_told_with_a_remedy(cluster: Cluster) -> None:
    def bad() -> list[dict[str, Any]]:
        found = ask(cluster[1], "GET", "/findings")
        assert found.status == 200, found
        return [it for it in found.content if it["severity"] in ("critical", "warning")]

    wait_until(lambda: not bad(), "the cluster is not well")
    cluster.kill(3)
    try:
        wait_until(lambda: any("Node 3" in it["what"] for it in bad()), "node 3 is not missed")
        wait_until(lambda: any("orders/0" in str(it["details"]) for it in bad()), "none is behind")
        assert all(it["remedy"] and it["code"].startswith("SL-") for it in bad())
        nodes = {it["node"]: it for it in ask(cluster[2], "GET", "/nodes").content}
        assert nodes[3]["fenced"] and not nodes[1]["fenced"]
        listed = ask(cluster[1], "GET", "/groups?limit=9")
        assert listed.status == 200
    finally:
        cluster.restart(3)
    wait_until(lambda: not bad(), "the cluster is not well again")


def test_offsets_and_groups_are_deleted(cluster: Cluster) -> None:
    group = "gone"
    commit(cluster, group, 4, 8)
    first, second, third = cluster.nodes.values()
    wanted = [{"stream": "orders", "partitions": [1, 2]}, {"stream": "missed"}]
    told = ask(first, "POST", f"/groups/{group}/offsets/delete", {"offsets": wanted}).content
    assert [(it["stream"], it["partition"], it["error"]) for it in told] == [
        ("orders", 1, None), ("orders", 2, "PartitionNotFound"), ("missed", None, "StreamNotFound"),
    ]  # fmt: skip
    assert committed(second, group) == {0: 4}
    assert ask(second, "DELETE", f"/groups/{group}").status == 204
    for node in (first, second, third):
        assert ask(node, "GET", f"/groups/{group}").code == "GroupNotFound"
    assert ask(third, "DELETE", f"/groups/{group}").code == "GroupNotFound"


def test_a_message_is_published_at_any_node_and_stored_by_its_leader(cluster: Cluster) -> None:
    """And its leader may be killed: what was acknowledged is there."""
    config = {"name": "published", "replicas": 3, "sync": "commit"}
    assert ask(cluster[1], "POST", "/streams", {"config": config}).status == 200
    offsets = []
    for number, node in cluster.nodes.items():
        told = ask(node, "POST", "/streams/published/message", {"payload": f"by {number}"})
        assert told.status == 200, told
        offsets.append(told.content["offset"])
    assert offsets == [0, 1, 2]
    leader = cluster.leader(("published", 0))
    cluster.kill(leader)
    wait_until(lambda: cluster.leader(("published", 0)) != leader, "nobody else leads")
    other = next(it for number, it in cluster.nodes.items() if number != leader)
    told = ask(other, "POST", "/streams/published/message", {"payload": "without it"})
    assert told.status == 200, told
    assert told.content["offset"] == 3
    assert [it.value for it in read_stream(cluster.servers, "published", start=0)] == [
        b"by 1", b"by 2", b"by 3", b"without it",
    ]  # fmt: skip
    cluster.start(leader)
