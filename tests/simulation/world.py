"""One seed, one story: publishers, a network, a node that is killed, a disk that fails."""

import errno
import random
from collections.abc import Callable
from functools import partial

from streamlog.config import SyncPolicy
from streamlog.errors import Unavailable
from tests.simulation.checkers import Checkers, Violation
from tests.simulation.disk import SimDisk
from tests.simulation.events import Events
from tests.simulation.network import Network
from tests.simulation.node import CONFIG, Life
from tests.simulation.publisher import Publisher
from tests.simulation.turns import turns_for_threads

TROUBLE_UNTIL_US = 150_000
STEPS_MAX = 20_000
CHECKPOINT_US = 10_000


class World:
    """Trouble until ``TROUBLE_UNTIL_US``; after that all must be well in the end."""

    config = CONFIG

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.events = Events()
        self.checkers = Checkers()
        self.disk = SimDisk(seed)
        self.life: Life | None = None
        self.story: list[str] = []
        """What went wrong when, for whoever looks into a failure."""
        self._epoch = 0
        self._encrypts = seed % 3 == 0
        self._sync: SyncPolicy = self.rng.choice(("commit", "commit", "interval", "os"))
        self._network = Network(self.events, self.rng, loss=self.rng.choice((0.0, 0.1, 0.3)))
        self._publishers = {
            name: self._publisher(name, window=window)
            for name, window in (("a", 1), ("b", 1), ("c", 5))
        }
        troubles = (self._die, self._fill, self._fail_sync, self._fail_write, self._purge)
        self._troubles: tuple[Callable[[], None], ...] = (self._die, self._die, *troubles)
        self.disk.short_writes = self.rng.random() < 0.2

    def _publisher(
        self,
        name: str,
        *,
        window: int,
        kind: type[Publisher] = Publisher,
        send: Callable[[bytes], None] | None = None,
    ) -> Publisher:
        return kind(
            name,
            window=window,
            pause_us_max=4_000,
            until_us=TROUBLE_UNTIL_US,
            rng=self.rng,
            events=self.events,
            send=send or self._send,
            checkers=self.checkers,
        )

    @property
    def events_run(self) -> int:
        return self.events.count

    def run(self) -> None:
        """Raises Violation."""
        with turns_for_threads():
            self._run()

    def _run(self) -> None:
        self._start()
        for publisher in self._publishers.values():
            publisher.start()
        self.events.after(CHECKPOINT_US, self._checkpoint)
        self.events.after(self._pause_us(), self._trouble)
        steps = 0
        while not self._done():
            steps += 1
            if steps > STEPS_MAX or not self.events.step():
                states = {p.name: p.acknowledged for p in self._publishers.values()}
                raise Violation(f"no end: acknowledged {states}")
        self._look()
        self._crash(power=self._sync == "commit")
        self._restart_calmly()

    def _done(self) -> bool:
        calm = self.events.now_us >= TROUBLE_UNTIL_US
        return calm and self.life is not None and all(p.done for p in self._publishers.values())

    # The network

    def _send(self, frame: bytes) -> None:
        def deliver() -> None:
            if self.life is not None:
                self.life.receive(frame)

        self._network.carry(deliver)

    def _answer(self, data: bytes) -> None:
        """What the node writes; the lines are cut as nats-server would."""
        while data:
            line, _, data = data.partition(b"\r\n")
            _, reply, size = line.decode().split(" ")
            payload, data = data[: int(size)], data[int(size) + 2 :]
            if not reply.partition(".")[2]:
                continue
            publisher = self._publishers[reply.partition(".")[0]]
            self._said(publisher, reply, payload)
            self._network.carry(partial(publisher.answered, reply, payload))

    def _said(self, publisher: Publisher, reply: str, payload: bytes) -> None:
        """The node has said so, whether the publisher hears it or not."""

    # The node

    def _start(self) -> None:
        self._epoch += 1
        try:
            self.life = Life(
                self.disk,
                epoch=self._epoch,
                sync=self._sync,
                events=self.events,
                rng=self.rng,
                checkers=self.checkers,
                answer=self._answer,
                encrypts=self._encrypts,
                config=self.config,
            )
        except (Unavailable, OSError) as error:
            self._tell(f"does not start: {error}")
            self.disk.kill()
            self.events.after(5_000, self._start)
        else:
            self._look()

    def _crash(self, *, power: bool) -> None:
        if self.life is not None:
            self.life.alive = False
            self.life = None
        if power:
            self.disk.crash()
        else:
            self.disk.kill()

    def _look(self) -> None:
        assert self.life is not None
        life = self.life
        self.checkers.look(life.log.log_start_offset, life.records(), life.erasures())

    def _checkpoint(self) -> None:
        if self.life is not None:
            self.life.write_checkpoints()
            if self.life.state.sync == "interval":
                self.life.sync()
        self.events.after(CHECKPOINT_US, self._checkpoint)

    def _restart_calmly(self) -> None:
        self.disk.capacity_bytes = None
        self._start()
        self._look()

    # Trouble

    def _trouble(self) -> None:
        if self.events.now_us < TROUBLE_UNTIL_US:
            self.rng.choice(self._troubles)()
            self.events.after(self._pause_us(), self._trouble)
        else:
            self.disk.capacity_bytes = None
            self.disk.faults.clear()
            self._restart_if_offline()

    def _die(self) -> None:
        """A power cut may lose what was acknowledged unless it was synced before."""
        if self.life is None:
            return
        power = self._sync == "commit" and self.rng.random() < 0.7
        self._tell("power cut" if power else "kill")
        self._crash(power=power)
        self.events.after(self.rng.randint(500, 8_000), self._start)

    def _fill(self) -> None:
        room = self.disk.used_bytes() + self.rng.randint(0, 3_000)
        self._tell(f"full at {room}")
        self.disk.capacity_bytes = room
        self.events.after(self.rng.randint(2_000, 15_000), self._make_room)

    def _make_room(self) -> None:
        self.disk.capacity_bytes = None

    def _fail_sync(self) -> None:
        self._tell("sync fails")
        self.disk.fail("sync", errno.EIO)
        self.events.after(8_000, self._restart_if_offline)

    def _fail_write(self) -> None:
        self._tell("write fails")
        self.disk.fail("pwrite", errno.EIO)
        self.events.after(8_000, self._restart_if_offline)

    def _restart_if_offline(self) -> None:
        """What an operator does about an offline partition."""
        if self.life is not None and self.life.state.failure is not None:
            self._tell("restart")
            self._crash(power=False)
            self._start()

    def _purge(self) -> None:
        """Only what nobody sends again: the id of a purged record is not known after a restart."""
        target = self.rng.randint(0, self.checkers.kept.settled_end())

        def purge() -> None:
            if self.life is not None:
                self._tell(f"purge to {target}")
                self.life.purge(target)

        self.events.after(2 * self._network.delay_us_max, purge)

    def _pause_us(self) -> int:
        return self.rng.randint(2_000, 25_000)

    def _tell(self, what: str) -> None:
        self.story.append(f"{self.events.now_us} us: {what}")
