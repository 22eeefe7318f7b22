"""Without a controller each node tells what it knows; whoever says nothing does not answer."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.cli.cluster import controller as module
from streamlog.cli.cluster.controller import Controller
from streamlog.cli.cluster.description import without_controller
from streamlog.cli.cluster.quorum import rows
from tests.unit.cli.cluster.test_findings import findings, partition, streams


def told(node: int, epoch: int, end: int) -> dict[str, Any]:
    voters: list[dict[str, Any]] = [
        {"node_id": i, "host": f"h{i}", "port": 1, "directory_id": None} for i in (1, 2, 3)
    ]
    nodes: list[dict[str, Any]] = [
        {**voter, "rack": None, "epoch": 0, "fenced": False, "draining": False, "heard": False}
        | {
            "replicas": 3,
            "leaders": 1,
            "stopping": False,
            "full": False,
            "unfit": (),
            "levels": None,
        }
        for voter in voters
    ]
    return {
        "node": node, "role": "follower", "controller": node, "epoch": epoch, "end_offset": end,
        "high_watermark": end, "voters": voters, "replicas": [], "nodes": nodes,
        "level": 1, "level_max": 1, "returning": [],
    }  # fmt: skip


def test_the_one_that_knows_most_tells_of_the_cluster() -> None:
    known = without_controller([told(1, 4, 90), told(3, 5, 88)])
    assert (known.controller, known.epoch) == (None, 5), "a node may not have noticed yet"
    assert known.silent == {2}
    assert [node.words for node in known.nodes] == ["answers", "does not answer", "answers"]
    assert [(row[0], row[1], row[3], row[4]) for row in rows(known)] == [
        (1, "voter", 90, 0), (2, "voter", None, None), (3, "voter", 88, 2),
    ]  # fmt: skip


def test_what_is_wrong_then() -> None:
    led = streams(partition(2, (1, 2, 3)), partition(1, (1, 2, 3), number=1))
    controller, *nodes, orders = findings(without_controller([told(1, 4, 90)]), led)
    assert controller.startswith("No controller is known: 1 of 3 voters answer, and 2 are needed;")
    assert nodes == ["Node 2 at h2:1 does not answer", "Node 3 at h3:1 does not answer"]
    assert orders == "orders/0 is led by node 2, which does not answer"


async def test_a_node_that_names_ever_more_nodes_is_not_followed_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ADDRESSES_MAX", 20)
    numbers, asked = itertools.count(10), list[tuple[str, int]]()

    async def operate_at(host: str, port: int, name: str, *_: object, **__: object) -> Any:
        assert name == "cluster.describe"
        asked.append((host, port))
        assert len(asked) <= 20
        more = [{"host": "h", "port": next(numbers)} for _ in range(3)]
        return {**told(port, 4, 90), "voters": more}

    cluster: Any = SimpleNamespace(addresses=[("h", 1)], operate_at=operate_at)
    await Controller(cluster)._tell_themselves()
    assert len(asked) == 20
