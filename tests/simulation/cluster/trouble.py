"""What befalls a cluster: machines, disks, clocks, links; at the end it is all over."""

import errno
import math
import random
from collections.abc import Callable, Mapping
from functools import partial

from streamlog.errors import StreamlogError
from streamlog.model import NodeId
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.links import NATS, Links, Weather
from tests.simulation.disk import PowerCut
from tests.simulation.events import Events

DOWN_US = (1_000, 6_000_000)
"""From a process that is started again at once to a machine that has to be looked for."""
CUT_US = (200_000, 8_000_000)


class Troubles:
    """``until_us`` is when it ends: all is healed, and whoever is down is started."""

    def __init__(
        self,
        events: Events,
        rng: random.Random,
        hosts: Mapping[NodeId, Host],
        links: Links,
        *,
        until_us: int,
        start: Callable[[Host], None],
        may_lose_unsynced: Callable[[Host], bool] = lambda host: True,
    ) -> None:
        self.story: list[str] = []
        self.kinds: list[Callable[[], None]] = [
            *4 * [self.kill],
            *3 * [self.power],
            self.power_of_all,
            self.power_in_a_call,
            *3 * [self.stop],
            *2 * [self.isolate],
            self.split,
            *2 * [self.cut_one_way],
            self.storm,
            self.slow_disk,
            self.fail_disk,
            self.fill_disk,
            self.jump,
        ]
        """One is drawn at a time; a world may add its own."""
        self.blows: list[str] = []
        """The kinds of those that were drawn, in order."""
        self.is_left_out: Callable[[int, str], bool] = lambda number, kind: False
        """Whether the blow of this number, or this kind, does nothing in this story."""
        self._events = events
        self._rng = rng
        self.hosts = hosts
        self._links = links
        self._until_us = until_us
        self._start = start
        self._may_lose_unsynced = may_lose_unsynced
        self._pause_us = rng.choice((300_000, 1_000_000, 3_000_000))
        for host in hosts.values():
            host.on_power_cut = partial(self._power_gone, host)

    @property
    def over(self) -> bool:
        return self._events.now_us >= self._until_us

    def begin(self) -> None:
        self._events.after(self._until_us - self._events.now_us, self._end)
        self._soon()

    def tell(self, what: str) -> None:
        self.story.append(f"{self._events.now_us / 1e6:.6f} s: {what}")

    def boot(self, host: Host) -> None:
        """Start its process; again, a little later, if that fails."""
        if host.is_up:
            return
        host.powered = True
        try:
            self._start(host)
        except PowerCut:
            self._power_gone(host)
        except (StreamlogError, OSError) as error:
            self.tell(f"node {host.node_id} does not start: {error}")
            host.kill()
            self._boot_after(host, 50_000)
        else:
            self.tell(f"node {host.node_id} starts")

    def fail(self, host: Host, why: str) -> None:
        """The process ends by itself."""
        if host.is_up:
            self.tell(f"node {host.node_id} ends: {why}")
            host.kill()
            self._boot_after(host, self._down_us())

    # Machines

    def kill(self, host: Host | None = None, *, down_us: int | None = None) -> None:
        """Any, for any time, unless the caller says."""
        host = host or self._pick()
        if host.is_up:
            self.tell(f"node {host.node_id} is killed")
            host.kill()
            self._boot_after(host, self._down_us() if down_us is None else down_us)

    def power(self, host: Host | None = None, *, down_us: int | None = None) -> None:
        """As ``kill``."""
        self._cut_power(host or self._pick(), down_us)

    def strike(self, host: Host) -> None:
        """One way or another."""
        self._rng.choice((self.kill, self._cut_power, self.stop, self._isolate))(host)

    def power_of_all(self) -> None:
        for host in self.hosts.values():
            self._cut_power(host)

    def power_in_a_call(self) -> None:
        host = self._pick()
        if host.is_up and self._may_lose_unsynced(host):
            host.disk.calls_left = self._rng.randint(0, 60)

    def stop(self, host: Host | None = None) -> None:
        host = host or self._pick()
        if host.is_up and not host.is_stopped:
            self.tell(f"node {host.node_id} is stopped")
            host.stop()
            life = host.life

            def resume() -> None:
                if host.life == life:
                    self.tell(f"node {host.node_id} goes on")
                    host.resume()

            self._events.after(self._rng.randint(50_000, 9_000_000), resume)

    def _cut_power(self, host: Host, down_us: int | None = None) -> None:
        if host.is_up and self._may_lose_unsynced(host):
            self.tell(f"node {host.node_id} loses power")
            host.cut_power()
            self._boot_after(host, self._down_us() if down_us is None else down_us)

    def _power_gone(self, host: Host) -> None:
        self.tell(f"node {host.node_id} loses power in the middle of a call")
        host.cut_power()
        self._boot_after(host, self._down_us())

    def _boot_after(self, host: Host, delay_us: int) -> None:
        self._events.after(delay_us, lambda: self.boot(host))

    def _down_us(self) -> int:
        """Short and long are as likely."""
        low, high = (math.log(bound) for bound in DOWN_US)
        return int(math.exp(self._rng.uniform(low, high)))

    # Links

    def isolate(self) -> None:
        self._isolate(self._pick())

    def _isolate(self, host: Host) -> None:
        place = host.node_id
        self.tell(f"node {place} is isolated")
        self._links.isolate(place, self._places(but=place))
        self.heal_later()

    def split(self) -> None:
        places = [NATS, *self.hosts]
        self._rng.shuffle(places)
        at = self._rng.randint(1, len(places) - 1)
        self.tell(f"{places[:at]} are split from {places[at:]}")
        self._links.split(places[:at], places[at:])
        self.heal_later()

    def cut_one_way(self) -> None:
        place = self._pick().node_id
        others = self._places(but=place)
        targets = self._rng.sample(others, self._rng.randint(1, len(others)))
        inward = self._rng.random() < 0.5
        self.tell(f"{place} {'hears nothing from' if inward else 'is not heard by'} {targets}")
        for other in targets:
            self._links.cut(*((other, place) if inward else (place, other)))
        self.heal_later()

    def storm(self) -> None:
        rng = self._rng
        self._links.weather = Weather(
            loss=rng.choice((0.0, 0.05, 0.2, 0.4)),
            duplication=rng.choice((0.0, 0.1)),
            slow=rng.choice((0.1, 0.4)),
            delay_us_max=rng.choice((20_000, 200_000, 1_500_000)),
        )
        self.tell(f"{self._links.weather}")
        self.heal_later()

    def heal_later(self) -> None:
        def heal() -> None:
            self.tell("the network heals")
            self._links.heal()
            self._links.weather = Weather()

        self._events.after(self._rng.randint(*CUT_US), heal)

    def _places(self, *, but: int) -> list[int]:
        return [place for place in (NATS, *self.hosts) if place != but]

    # Disks and clocks

    def slow_disk(self) -> None:
        host = self._pick()
        self.tell(f"the disk of node {host.node_id} is slow")
        host.slow_disk = True

        def mend() -> None:
            host.slow_disk = False

        self._events.after(self._rng.randint(*CUT_US), mend)

    def fail_disk(self) -> None:
        host = self._pick()
        operation = self._rng.choice(("sync", "sync", "pwrite", "write_small", "sync_directory"))
        self.tell(f"the disk of node {host.node_id} fails a {operation}")
        host.disk.fail(operation, errno.EIO)

    def fill_disk(self) -> None:
        host = self._pick()
        host.disk.capacity_bytes = host.disk.used_bytes() + self._rng.randint(0, 3_000)
        self.tell(f"the disk of node {host.node_id} is nearly full")
        disk = host.disk

        def make_room() -> None:
            disk.capacity_bytes = None

        self._events.after(self._rng.randint(*CUT_US), make_room)

    def jump(self) -> None:
        self._pick().clock.jump(self._rng.randint(-30_000, 30_000))

    # The course of it

    def _pick(self) -> Host:
        return self.hosts[self._rng.choice(sorted(self.hosts))]

    def _soon(self) -> None:
        self._events.after(self._rng.randint(0, 2 * self._pause_us), self._strike)

    def _strike(self) -> None:
        if not self.over:
            strike = self._rng.choice(self.kinds)
            kind = getattr(strike, "__name__", str(strike))
            self.blows.append(kind)
            if not self.is_left_out(len(self.blows) - 1, kind):
                strike()
            self._soon()

    def _end(self) -> None:
        self.tell("all is mended")
        self._links.heal()
        self._links.weather = Weather()
        for host in self.hosts.values():
            host.disk.capacity_bytes = None
            host.disk.faults.clear()
            host.disk.calls_left = None
            host.slow_disk = False
            host.late_us = host.ingests_late_us = host.sends_late_us = 0
            if host.is_stopped:
                host.resume()
            self.boot(host)
