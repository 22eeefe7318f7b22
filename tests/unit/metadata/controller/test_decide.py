import pytest

from streamlog.errors import InvalidRequest
from streamlog.metadata import commands as c
from streamlog.model import NodeId
from tests.controller_world import World


@pytest.mark.parametrize(
    "command",
    [
        c.AddVoter(node_id=NodeId(1)),
        c.RemoveVoter(node_id=NodeId(1)),
        c.TransferController(),
        c.AwaitApplied(offset=1, wait_ms=1),
        c.DescribeCluster(),
    ],
    ids=lambda command: type(command).__name__,
)
def test_what_others_decide_is_refused(command: c.Command) -> None:
    with pytest.raises(InvalidRequest, match=type(command).__name__):
        World(1).ask(command)


def test_whom_a_fenced_node_led_is_led_by_the_others_in_equal_parts() -> None:
    world = World(3)
    world.create(partitions=1_000, replicas=3)
    world.fence(1)
    assert world.image.load(NodeId(1)).leaders == 0
    assert {world.image.load(NodeId(node)).leaders for node in (2, 3)} == {500}
