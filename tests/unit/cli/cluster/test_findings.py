"""What is wrong with a cluster, one line each."""

import pytest

from streamlog.cli.cluster.description import (
    Description,
    FollowerStatus,
    NodeDescription,
    VoterStatus,
    cluster_facts,
)
from streamlog.client.topology import PartitionInfo, TopicInfo, Topology
from streamlog.condition import CRITICAL, NOTE, WARNING
from streamlog.findings import Finding, cluster_findings
from streamlog.metadata.nodes.healing_status import HealingStatus
from streamlog.model import NO_LEADER, NodeId


def cluster(*fenced: int, registered: tuple[int, ...] = (1, 2, 3)) -> Description:
    nodes = tuple(
        NodeDescription(
            i,
            "host",
            9092,
            None,
            0,
            fenced=i in fenced,
            stopping=False,
            draining=False,
            replicas=0,
            leaders=0,
            full=False,
            unfit=(),
            heard=True,
            levels=None,
        )
        for i in registered
    )
    voters = tuple(VoterStatus(i, "host", 9092, None) for i in (1, 2, 3))
    return Description(1, 1, 1, voters, (), nodes, level=1, level_max=1, returning=())


def streams(*partitions: PartitionInfo) -> Topology:
    return Topology("id", NodeId(1), {}, {"orders": TopicInfo("orders", None, partitions)})


def partition(leader: int, isr: tuple[int, ...], *, number: int = 0) -> PartitionInfo:
    replicas = (NodeId(1), NodeId(2), NodeId(3))
    return PartitionInfo(number, NodeId(leader), 0, replicas, tuple(map(NodeId, isr)), ())


def found(known: Description, topology: Topology) -> list[Finding]:
    return cluster_findings(cluster_facts(known, topology))


def findings(known: Description, topology: Topology) -> list[str]:
    """What is said; of partitions line by line."""
    said = found(known, topology)
    assert all(it.remedy and it.severity in (CRITICAL, WARNING) for it in said)
    return [line for it in said for line in it.details or (it.what,)]


def test_all_is_well() -> None:
    whole = streams(partition(1, (1, 2, 3)), partition(2, (3, 2, 1), number=1))
    assert findings(cluster(), whole) == []


def test_a_node_that_is_away() -> None:
    assert findings(cluster(2), streams()) == ["Node 2 at host:9092 is gone"]


def test_a_node_that_only_the_last_controller_knew() -> None:
    """It may have lost its disk meanwhile, and be in sync on paper."""
    known = cluster()
    known = known._replace(nodes=(*known.nodes[:2], known.nodes[2]._replace(heard=False)))
    told = "Node 3 at host:9092 has not reported to the new controller yet"
    assert findings(known, streams()) == [told]


def test_a_voter_that_has_never_been_there() -> None:
    assert findings(cluster(registered=(1, 3)), streams()) == ["Voter 2 has never been there"]


def voting(*followers: FollowerStatus) -> Description:
    """Node 1 is the controller, and each voter's folder is called by its number."""
    known = cluster()
    voters = tuple(it._replace(directory_id=str(it.node_id)) for it in known.voters)
    return known._replace(voters=voters, replicas=(follower(1, "1"), *followers))


def follower(node_id: int, directory_id: str | None) -> FollowerStatus:
    return FollowerStatus(node_id, 7, 0, 0, directory_id)


def test_a_voter_with_another_folder_does_not_count_until_it_is_let_vote() -> None:
    """Whoever stopped the next node now could leave the quorum with one voice of three."""
    away = "Voter 3 has lost its metadata, and may not vote yet"
    known = voting(follower(2, "2"), follower(3, "3"), follower(3, "new"))
    assert findings(known, streams()) == [away]
    assert findings(voting(follower(2, "2"), follower(3, "new"), follower(3, "3")), streams()) == []


def test_a_voter_that_does_not_fetch() -> None:
    away = "Voter 3 does not follow the metadata yet"
    assert findings(voting(follower(2, "2")), streams()) == [away]


def test_replicas_whose_folders_are_unknown() -> None:
    assert findings(voting(follower(2, None), follower(3, None)), streams()) == []


def test_a_dead_voter_is_told_once() -> None:
    known = voting(follower(2, "2"))
    gone = known.nodes[2]._replace(fenced=True)
    known = known._replace(nodes=(*known.nodes[:2], gone))
    assert findings(known, streams()) == ["Node 3 at host:9092 is gone"]


def test_replicas_that_are_behind() -> None:
    behind = streams(partition(1, (1, 3)), partition(1, (1,), number=1))
    assert findings(cluster(), behind) == [
        "orders/0 is not in sync on node 2",
        "orders/1 is not in sync on nodes 2, 3",
    ]
    (finding,) = found(cluster(), behind)
    said = "2 partitions not in sync on every replica (orders/0, orders/1)"
    assert (finding.severity, finding.what) == (WARNING, said)


def test_partitions_that_nobody_leads() -> None:
    nobody = streams(partition(NO_LEADER, (2,)), partition(NO_LEADER, (), number=1))
    assert findings(cluster(), nobody) == [
        "orders/0 has no leader; in sync: 2",
        "orders/1 has no leader; in sync: none",
        "orders/0 is not in sync on nodes 1, 3",
        "orders/1 is not in sync on nodes 1, 2, 3",
    ]


def test_a_node_that_is_unfit() -> None:
    known = cluster()
    full, ill = known.nodes[0]._replace(full=True), known.nodes[1]._replace(unfit=("clock",))
    known = known._replace(nodes=(full, ill, known.nodes[2]))
    disk, clock = findings(known, streams())
    assert disk.startswith("Node 1: its disk is full: it stores nothing")
    assert clock.startswith("Node 2: its clock is wrong")
    assert ill.words == "live, clock trouble"
    without = known.nodes[2]._replace(unfit=("nats",))
    assert "not connected to NATS" in findings(known._replace(nodes=(without,)), streams())[0]


@pytest.mark.parametrize(
    ("healing", "said"),
    [
        (HealingStatus(), []),
        (
            HealingStatus((NodeId(3),), moving=1, waiting=2),
            [("SL-0136", NOTE, "Node 3: lost for long; 1 partition moves to other nodes, 2 wait")],
        ),
        (
            HealingStatus((NodeId(2), NodeId(3)), leaderless=2, without_room=1),
            [
                ("SL-0137", WARNING, "Nodes 2, 3: lost for long; 2 partitions have no leader"),
                ("SL-0137", WARNING, "Nodes 2, 3: lost for long; 1 partition finds no room"),
            ],
        ),
        (
            HealingStatus((NodeId(2), NodeId(3)), too_many=True),
            [("SL-0137", WARNING, "Nodes 2, 3: lost for long; so many are not replaced")],
        ),
    ],
)
def test_self_healing_is_told(healing: HealingStatus, said: list[tuple[str, str, str]]) -> None:
    told = found(cluster()._replace(healing=healing), streams())
    assert [(it.code, it.severity, it.what) for it in told] == said
