"""Stories of a cluster whose streams take schedules: their leaders end while many are due, and clocks differ."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from streamlog.control.messages import purge
from streamlog.errors import StreamlogError
from streamlog.ingest.schedules import firing
from streamlog.ingest.schedules.schedule_spec import rfc3339_nano
from streamlog.log.log import PartitionLog
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.partition.partition import Partition
from tests.simulation.cluster.clock import BEGAN_MS
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.partition_checkers import Replica, replica_of
from tests.simulation.cluster.settings import replication_section
from tests.simulation.cluster.swarm import SEGMENT_BYTES, Kind, LeadersEnd, SwarmWorld
from tests.simulation.publisher import Publisher, frame
from tests.simulation.schedule_oracle import Message, ScheduleOracle, entries_of

PLANS: Final = (8, 50, 200)
"""On so many subjects a publisher has schedules, which others use as well: where they are few, most schedules are
replaced before they fire.
"""
TARGETS: Final = 3
SOURCES: Final = 2
ROLLED_UP: Final = 4
"""Subjects on which messages have their predecessors go."""
LATE_NS: Final = 2_000_000_000
"""A schedule is late after so long."""
NO_SCHEDULE: Final = 10212
READ_BYTES: Final = 1 << 20


class SchedulePublisher(Publisher):
    """Publishes schedules, messages that take their place or end them, and messages that they publish."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._asked: dict[int, tuple[str, str]] = {}
        """By number: the subject and the headers of each message."""
        self._plans = self._rng.choice(PLANS)

    def is_stored(self, number: int, error: dict[str, object]) -> bool:
        """There is no schedule that it could end."""
        return error.get("err_code") == NO_SCHEDULE

    def stored(self, number: int, answer: dict[str, int]) -> None:
        if "error" not in answer:
            super().stored(number, answer)

    def _try(self, number: int) -> None:
        if number not in self._asked:
            self._asked[number] = self._draw(self.name[: self.name.index("0")])
        subject, lines = self._asked[number]
        self._sent_us[number] = self._events.now_us
        self._send(frame(f"{self.name}.{number}", f"{self.name}:{number}", lines, subject))
        self._retry_after(self._timeout_us, number)

    def _draw(self, stream: str) -> tuple[str, str]:
        rng, plan = self._rng, f"plan.{self._rng.randrange(self._plans)}"
        kind = rng.random()
        if kind < 0.12:
            return "end", f"Nats-Schedule-Next: purge\r\nNats-Scheduler: {stream}.{plan}\r\n"
        if kind < 0.2:
            return plan, rng.choice(("", "Nats-Rollup: sub\r\n"))
        if kind < 0.32:
            return f"source.{rng.randrange(SOURCES)}", rng.choice(("", "Nats-Rollup: sub\r\n"))
        target = f"target.{rng.randrange(TARGETS)}"
        if rng.random() < 0.1:
            target = rng.choice([it for it in map("plan.{}".format, range(8)) if it != plan])
        lines = f"Nats-Schedule: {self._spec()}\r\nNats-Schedule-Target: {stream}.{target}\r\n"
        if rng.random() < 0.2:
            lines += f"Nats-Schedule-Source: {stream}.source.{rng.randrange(SOURCES)}\r\n"
        if rng.random() < 0.2:
            lines += "Nats-Schedule-TTL: 1s\r\n"
        if rng.random() < 0.2:
            lines += "Nats-Schedule-Rollup: sub\r\n"
        return plan, lines

    def _spec(self) -> str:
        rng, now_ms = self._rng, BEGAN_MS + self._events.now_ms
        kind = rng.random()
        if kind < 0.2:
            return f"@every {rng.randint(1, 2)}s"
        if kind < 0.3:
            return f"*/{rng.randint(1, 3)} * * * * *"
        at_ms = now_ms + rng.randint(-500, 3_000)
        if kind < 0.7:  # with others
            at_ms -= at_ms % 1_000
        return f"@at {rfc3339_nano(at_ms * 1_000_000)}"


class SchedulesWorld(SwarmWorld):
    """As its parent; but what the log says of schedules is held against an oracle."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.oracles: dict[Replica, ScheduleOracle] = {}
        self.publishers.kinds = [(1, SchedulePublisher), (4, SchedulePublisher)]
        self.publishers.stored = self._stored
        self.observer.partitions.committed = self._committed
        self.observer.partitions.forgets_ids = True
        self._clocks_are_right = False
        self._limits = {
            "FIRED_AT_ONCE": self.rng.choice((1, 2, 5, 500)),
            "PREPARED_AT_ONCE": self.rng.choice((1, 2, 50)),
            "PARTS_AT_ONCE": self.rng.choice((4, 16)),
            "READ_BYTES": self.rng.choice((4_000, 4 << 20)),
        }

    def run(self) -> None:
        """With limits that a few schedules reach, and others that take their turns meanwhile."""
        ticking = SimpleNamespace(sleep=self._sleep, to_thread=asyncio.to_thread)
        with ExitStack() as stack:
            for name, limit in {**self._limits, "asyncio": ticking}.items():
                stack.enter_context(patch.object(firing, name, limit))
            super().run()

    async def _sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s or self.rng.choice((0, 0.001, 0.03)))

    def faults(self) -> list[Kind]:
        return [*super().faults(), self._erase, self._erase]

    def always(self) -> list[Kind]:
        return [self._kill_a_leader, self._elect_another]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        rng = self.rng
        replicas = rng.choice((1, 2, 3, 3))
        return StreamConfig.of(
            name=name,
            subjects=(name, f"{name}.>"),
            replicas=replicas,
            min_isr=rng.choice((None, 1, replicas)),
            encrypted=rng.random() < 0.2,
            segment_bytes=rng.choice((SEGMENT_BYTES, None)),
            allow_schedules=True,
            allow_ttl=True,
        )

    # What is told

    def _oracle(self, replica: Replica) -> ScheduleOracle:
        known = self.oracles.get(replica)
        return known or self.oracles.setdefault(replica, ScheduleOracle(str(replica)))

    def _stored(self, replica: Replica, offset: int) -> None:
        if replica not in self.observer.partitions.forgiven:
            self._oracle(replica).stored(offset)

    def _committed(self, replica: Replica, log: PartitionLog, start: int, end: int) -> None:
        oracle, committed = self._oracle(replica), self.observer.partitions.log_of(replica)
        oracle.purge_asked = committed.purge_asked
        oracle.set_back_ns = max(host.clock.set_back_ns for host in self.hosts.values())
        while start < end:
            with log.read(start, READ_BYTES, log.log_end_offset) as piece:
                data = piece.read()
            for entry in entries_of(data, start, end):
                oracle.take(entry)
                if isinstance(entry, Message) and "Nats-TTL" in entry.headers:
                    committed.expiring.add(entry.offset)
                start = entry.offset + 1

    def _purged(self, partition: Partition, offset: int) -> None:
        self._oracle(replica_of(partition)).purged(offset, partition.log_end_offset)

    def _erased(self, replica: Replica, subject: str, upper: int, end: int) -> None:
        oracle = self._oracle(replica)
        oracle.purge_asked = self.observer.partitions.log_of(replica).purge_asked
        oracle.erased(subject, upper, end)

    # Trouble

    def _erase(self) -> None:
        """A message of a schedule, or all of its subject, is deleted by an operator."""
        led = [
            (node, partition, oracle)
            for node in self.nodes()
            if node.is_at_work
            for partition in node.registry.partitions()
            if partition.is_leader
            and (oracle := self.oracles.get(replica_of(partition)))
            and oracle.planned
        ]
        if led:
            self._erase_at(*self.rng.choice(led))

    def _erase_at(self, node: ClusterNode, partition: Partition, oracle: ScheduleOracle) -> None:
        subject = self.rng.choice(sorted(oracle.planned))
        offset, upper = oracle.planned[subject].message.offset, partition.high_watermark
        ask: Callable[[], Awaitable[object]] = partial(purge.purge, partition, pattern=subject)
        told = f"purge of {subject}"
        if self.rng.random() < 0.5:
            upper, told = offset + 1, f"deletion of {offset}"
            ask = partial(purge.delete, partition, offset + 1)
        told = f"{told} in {partition.tp} ({replica_of(partition)})"
        self.troubles.tell(f"{told} asked of node {node.host.node_id}")
        forgiven = self.observer.partitions.forgiven

        async def erase() -> None:
            if not partition.high_watermark_known or not node.metadata.lease.held:
                return
            try:
                await ask()
            except StreamlogError as error:
                self.troubles.tell(f"{told}: not done: {error!r}")
                return
            self.troubles.tell(f"{told} is acknowledged")
            if replica_of(partition) not in forgiven:
                end = partition.log_end_offset
                self.events.after(
                    0, lambda: self._erased(replica_of(partition), subject, upper, end)
                )

        node.loop.call_soon(lambda: node.spawn(erase()))

    # The end

    def _is_well(self) -> bool:
        if not self._clocks_are_right:
            self._clocks_are_right = True
            for host in self.hosts.values():
                host.clock.be_right()
        return super()._is_well() and not self._late()

    def _late(self) -> list[str]:
        now_ns = (BEGAN_MS + self.events.now_ms) * 1_000_000 - LATE_NS
        return [
            it
            for stream in self.observer.newest.streams.values()
            for replica in [Replica(stream.stream_id, 0)]
            if replica in self.oracles and replica not in self.observer.partitions.forgiven
            for it in self.oracles[replica].late(now_ns)
        ]

    def _state(self) -> str:
        return "\n".join([*self._late(), super()._state()])


class FiringLeadersEnd(LeadersEnd, SchedulesWorld):
    """Little else than that: leaders end, or are cut off, when they have appended what is not committed."""

    def faults(self) -> list[Kind]:
        return [self._be_slow, self.troubles.jump, self._erase, self._purge]

    def _make_configs(self, nodes: int) -> list[StreamConfig]:
        return [self._config("a", nodes).changed(replicas=3, min_isr=self.rng.choice((1, 2)))]

    def _while_cut_off(self) -> None:
        for _ in range(5):
            self.events.after(self.rng.randint(0, 500_000), self._erase)


class RollupPublisher(SchedulePublisher):
    """Most of its messages have those before them on their subjects go, schedules too."""

    def _draw(self, stream: str) -> tuple[str, str]:
        if self._rng.random() < 0.2:
            return super()._draw(stream)
        return f"plan.{self._rng.randrange(ROLLED_UP)}", "Nats-Rollup: sub\r\n"


class RollupsAreRepeated(FiringLeadersEnd):
    """A leader ends between a message that has others go and the commit of their erasure, and it is sent again."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.publishers.kinds = [(1, RollupPublisher), (4, RollupPublisher)]
        self.replication = replication_section(
            fetch_bytes_max=1
        )  # a batch at a time: without its erasure

    def faults(self) -> list[Kind]:
        return [self._be_slow, self.troubles.jump]


class OncePublisher(SchedulePublisher):
    """Publishes each message once: its id counts for no longer than the message is in the files."""

    retries = False

    def _retry_after(self, delay_us: int, number: int) -> None:
        def give_up() -> None:
            if self._waiting.pop(number, None) is not None:
                self._next_soon()

        self._events.after(delay_us, give_up)


class FiredMessagesGo(FiringLeadersEnd):
    """What schedules have fired leaves the files soon: a leader to come does not find it there."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.publishers.kinds = [(1, OncePublisher), (4, OncePublisher)]
        self.of_logs = {"compaction_interval_ms": 200, "erasure_lag_ms": 100}

    def _make_configs(self, nodes: int) -> list[StreamConfig]:
        return [
            config.changed(duplicate_window_ms=100, segment_bytes=SEGMENT_BYTES)
            for config in super()._make_configs(nodes)
        ]
