"""A machine: a disk, clocks, and at most one process, which is killed, stopped and started again.

All that a process wants to happen later goes through ``after``: nothing of it outlives the process,
and nothing happens while the process is stopped.
"""

import random
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from streamlog.model import NodeId
from tests.simulation.cluster.clock import Clock
from tests.simulation.disk import PowerCut, SimDisk
from tests.simulation.events import Events


class Host:
    """Of ``node_id``. ``process`` is None while it is down; ``powered`` says whether the machine is
    there to say so.
    """

    current: ClassVar["Host | None"] = None
    """Whose event is running."""
    latest: ClassVar["Host | None"] = None
    """Whose event was the last one."""

    def __init__(self, node_id: NodeId, events: Events, rng: random.Random) -> None:
        self.node_id = node_id
        self.rng = rng
        self.events = events
        self.disk = SimDisk(rng.getrandbits(32))
        self.directory_id = uuid.UUID(int=rng.getrandbits(128))
        """Of the data folder; another one on another disk."""
        self.absent: list[SimDisk] = []
        """Disks that are not mounted now, and may be again."""
        self.clock = Clock(events, rng)
        self.process: Any = None
        self.powered = True
        self.slow_disk = False
        self.late_us = 0
        """Until when its node does not act on the metadata, in true time."""
        self.ingests_late_us = 0
        """How much later than its partitions its ingests are told of the metadata."""
        self.sends_late_us = 0
        """Until when its node sends nothing of its logs, in true time: the sockets are full."""
        self.boot = 0
        """Grows when the machine, not just the process, starts anew."""
        self.on_power_cut: Callable[[], None] = lambda: None
        """The disk's power went in the middle of a call."""
        self.on_end: list[Callable[[bool], None]] = []
        """Told that the process has ended, and whether the machine is there to close its files."""
        self._life = 0
        self._stopped = False
        self._backlog: deque[Callable[[], None]] = deque()

    @property
    def is_up(self) -> bool:
        return self.process is not None

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    @property
    def life(self) -> int:
        """Another number, another process."""
        return self._life

    def disk_delay_us(self) -> int:
        """How long a blocking call takes."""
        if self.slow_disk:
            return self.rng.randint(5_000, 400_000)
        return self.rng.choice((100, 500, 3_000))

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        """``call``, unless the process is another by then."""
        life = self._life

        def run() -> None:
            if self._life != life:
                return
            if self._stopped:
                self._backlog.append(run)
            else:
                self.run(call)

        self.events.after(delay_us, run)

    def at(self, deadline_ms: int, call: Callable[[], None]) -> None:
        """At that time of the monotonic clock."""
        self.after(self.clock.delay_us(deadline_ms), call)

    def run(self, call: Callable[[], None]) -> None:
        """Now; the power may be cut in the middle of it."""
        Host.latest = self
        before, Host.current = Host.current, self
        try:
            call()
        except PowerCut:
            self.on_power_cut()
        finally:
            Host.current = before

    def kill(self) -> None:
        """The process ends; what it wrote is in the page cache and stays."""
        self._end(kernel=True)
        self.disk.kill()

    def cut_power(self) -> None:
        """What was not synced may be gone."""
        self._end(kernel=False)
        self.powered = False
        self.boot += 1
        self.disk.crash()

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        assert self.process is None
        self.disk = SimDisk(self.rng.getrandbits(32))
        self.directory_id = uuid.UUID(int=self.rng.getrandbits(128))

    def mount(self, disk: SimDisk | None = None) -> None:
        """Another disk in the place of this one, which may come back; by default an empty one."""
        assert self.process is None
        self.absent.append(self.disk)
        if disk is None:
            self.disk = SimDisk(self.rng.getrandbits(32))
        else:
            self.absent.remove(disk)
            self.disk = disk
        self.directory_id = uuid.UUID(int=self.rng.getrandbits(128))

    def stop(self) -> None:
        """As SIGSTOP does: whatever comes in waits."""
        self._stopped = True

    def resume(self) -> None:
        self._stopped = False
        backlog, self._backlog = self._backlog, deque()
        for call in backlog:
            self.events.after(0, call)

    def start(self, process: object) -> None:
        """The process runs from now on."""
        assert self.process is None
        self.process = process
        self.powered = True

    def _end(self, *, kernel: bool) -> None:
        if self.process is not None:
            for told in self.on_end:
                told(kernel)
        self.process = None
        self._life += 1
        self._stopped = False
        self._backlog.clear()
