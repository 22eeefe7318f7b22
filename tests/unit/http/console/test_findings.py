"""What is wrong is said, worst first, each with what to do; and nothing where all is well."""

from typing import Any

import pytest

from streamlog.condition import CRITICAL, NOTE, WARNING
from streamlog.findings import Finding
from streamlog.http.console.cluster_snapshot import ClusterSnapshot
from streamlog.http.console.node_findings import findings
from streamlog.http.console.overview import Overview
from streamlog.metadata.nodes.healing_status import HealingStatus
from streamlog.metadata.nodes.node_condition import Facts, judge
from streamlog.model import NodeId, TopicPartition
from tests.page_world import image, moment, partition, stream

WELL = image(stream("s", partition(), partition()))


def found(it: ClusterSnapshot) -> list[Finding]:
    overview = Overview()
    overview.follow(it.image)
    assert overview.work()
    return findings(it, overview)


def test_all_is_well() -> None:
    assert found(moment(WELL)) == []


@pytest.mark.parametrize(
    ("changes", "severity", "said"),
    [
        ({"controller": None}, CRITICAL, "No controller is known"),
        ({"lease_held": False}, CRITICAL, "no word from the controller, node 2"),
        (
            {"reasons": {"nats": "not connected to NATS"}},
            CRITICAL,
            "(this one): not connected to NATS",
        ),
        ({"reasons": {"metadata": "disk"}}, CRITICAL, "takes no part in the quorum: disk"),
        ({"reasons": {"replicas": "catching up"}}, NOTE, "is not ready: catching up"),
        ({"troubles": judge(Facts(disk_full=True))}, CRITICAL, "(this one): its disk is full"),
        ({"loop_lag_s": 2.0}, WARNING, "answers late, by 2.0 s"),
        (
            {"troubles": judge(Facts(clock_ahead_s=-2.5))},
            WARNING,
            "(this one): its clock is 2.5 s behind the controller's",
        ),
        ({"failures": {TopicPartition("s", 1): "I/O"}}, CRITICAL, "such as s-1: I/O"),
        (
            {"healing": HealingStatus((NodeId(3),), moving=2)},
            NOTE,
            "Node 3: lost for long; 2 partitions move to other nodes",
        ),
        ({"damaged": (TopicPartition("s", 1),)}, CRITICAL, "1 partition on this node have"),
    ],
)
def test_of_this_node(changes: dict[str, Any], severity: str, said: str) -> None:
    (finding,) = found(moment(WELL, **changes))
    assert finding.severity == severity
    assert said in finding.what
    assert finding.remedy


@pytest.mark.parametrize(
    ("state", "severity", "said"),
    [
        ({"fenced": True}, CRITICAL, "Node 2 at host-2:9092 is gone"),
        ({"fenced": True, "stopping": True}, WARNING, "Node 2 was stopped in order"),
        ({"full": True}, CRITICAL, "Node 2: its disk is full"),
        ({"unfit": ("certificate",)}, CRITICAL, "Node 2: its certificate has expired"),
        ({"unfit": ("of a later version",)}, CRITICAL, "Node 2: of a later version"),
        ({"unfit": ("nats",)}, CRITICAL, "Node 2: it is not connected to NATS"),
        ({"draining": True}, NOTE, "Node 2 is being drained"),
    ],
)
def test_of_another_node(state: dict[str, Any], severity: str, said: str) -> None:
    (finding,) = found(moment(image(node_2=state)))
    assert (finding.severity, said in finding.what) == (severity, True)


def test_a_voter_that_has_never_been_there() -> None:
    (finding,) = found(moment(image(node_3=None)))
    assert "Voter 3" in finding.what and "remove-voter 3" in finding.remedy


def test_partitions_are_counted_and_some_named() -> None:
    ill = [partition(leader=-1, isr=(2,)) for _ in range(5)]
    behind = partition(isr=(1, 3))
    it = moment(image(stream("s", *ill), stream("t", behind), node_2={"fenced": True}))
    said = [finding.what for finding in found(it)]
    assert "5 partitions without a leader, such as s/0, s/1, s/2: nothing" in " ".join(said)
    assert "5 partitions with fewer replicas in sync than min_isr" in " ".join(said)
    assert "6 partitions not in sync on every replica" in said[-1]
    assert all(finding.remedy for finding in found(it))


def test_a_node_that_starts_does_not_call_itself_gone() -> None:
    """Nor NATS, which it has not tried yet, nor the quorum before it has read its metadata."""
    reasons = {"node": "the node is starting: partitions", "nats": "not connected to NATS"}
    (finding,) = found(moment(image(node_1={"fenced": True}), reasons=reasons))
    assert (finding.severity, "starting: partitions" in finding.what) == (NOTE, True)
    (finding,) = found(
        moment(image(), reasons=reasons, role="starting", controller=None, voters=())
    )
    assert finding.severity == NOTE


def test_the_worst_comes_first() -> None:
    ahead = judge(Facts(clock_ahead_s=9.0))
    it = moment(image(node_2={"draining": True}, node_3={"fenced": True}), troubles=ahead)
    assert [finding.severity for finding in found(it)] == [CRITICAL, WARNING, NOTE]


@pytest.mark.parametrize(("name", "others"), [("http_certificate", False), ("clock", True)])
def test_that_others_lead_is_said_where_they_do(name: str, others: bool) -> None:
    (finding,) = found(moment(image(node_2={"unfit": (name,)})))
    assert ("others lead" in finding.what) is others


def test_what_is_unfit_is_said_once() -> None:
    """The reasons of /readyz have it, too, and so has the image."""
    troubles = judge(Facts(disk_full=True))
    reasons = {"disk": troubles[0].said}
    (finding,) = found(moment(image(node_1={"full": True}), troubles=troubles, reasons=reasons))
    assert finding.severity == CRITICAL
