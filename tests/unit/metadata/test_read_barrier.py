from streamlog.errors import NoController
from streamlog.metadata.commands import AwaitApplied, Command, DescribeCluster, Granted
from streamlog.metadata.read_barrier import CATCH_UP_S, catch_up


class Node:
    is_current = False

    def __init__(self, *, has_controller: bool = True) -> None:
        self.asked: list[Command] = []
        self.taken: list[tuple[Command, bool]] = []
        self._has_controller = has_controller

    async def request(self, command: Command) -> Granted:
        self.asked.append(command)
        if not self._has_controller:
            raise NoController("lost")
        return Granted(7, {"high_watermark": 42})

    async def take(self, command: Command, *, forwarded: bool) -> Granted:
        self.taken.append((command, forwarded))
        return Granted(42, {})


async def test_what_the_controller_has_is_waited_for_here() -> None:
    node = Node()
    await catch_up(node)
    assert node.asked == [DescribeCluster()]
    wait_ms = int(CATCH_UP_S * 1000)
    assert node.taken == [(AwaitApplied(offset=42, wait_ms=wait_ms), True)], "nobody else is asked"


async def test_a_node_that_has_all_that_was_decided_asks_nobody() -> None:
    node = Node()
    node.is_current = True
    assert await catch_up(node)
    assert (node.asked, node.taken) == ([], [])


async def test_without_a_controller_what_there_is_will_do() -> None:
    node = Node(has_controller=False)
    await catch_up(node)
    assert node.taken == []
