"""What watchers are told is made once between two beats, however many ask for it."""

from typing import Any

from streamlog.console.page.chronicle import Chronicle
from streamlog.console.page.interest import Interest
from streamlog.console.page.live import Live
from streamlog.console.page.moment import Moment
from streamlog.console.page.query import Query
from streamlog.console.page.rates import Rates
from streamlog.console.page.view import View
from tests.page_world import LocalPartitions, image, moment, partition, stream


class World:
    def __init__(self) -> None:
        self.image = image(stream("s", partition()))
        self.looks = 0
        rates, chronicle = Rates(), Chronicle()
        self.live = Live(
            moment=self.moment,
            ends=dict,
            view=View(LocalPartitions(), rates, chronicle),
            rates=rates,
            chronicle=chronicle,
            interest=Interest(),
            clients_max=100,
        )

    def moment(self) -> Moment:
        self.looks += 1
        return moment(self.image)

    def told(self, **query: Any) -> dict[str, str]:
        return self.live._texts(Query(**query))


async def test_a_hundred_watchers_cost_one_look() -> None:
    world = World()
    first = world.told()
    assert all(world.told() is first for _ in range(100))
    assert world.looks == 1
    assert world.told(show="partitions") is not first
    assert world.looks == 2, "who asks for something else"


async def test_a_change_is_told_at_once() -> None:
    world = World()
    assert '"name":"t"' not in world.told()["rows"]
    old, world.image = world.image, image(stream("t", partition()), offset=8)
    world.live.changed(old, world.image)
    assert '"name":"t"' in world.told()["rows"]
    assert world.looks == 2
