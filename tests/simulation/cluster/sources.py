"""Stories of a cluster whose streams take messages of each other: by sources, and by a mirror."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from streamlog.control.messages import purge
from streamlog.errors import StreamlogError
from streamlog.jetstream.consumers import stream_source
from streamlog.jetstream.mirroring import (
    fed_partition,
    mirror_service,
    origin_batches,
    origin_feeds,
)
from streamlog.jetstream.mirroring.origin_batches import identity_of
from streamlog.jetstream.mirroring.origin_feeds import CLOCKS_MS
from streamlog.log.log import PartitionLog
from streamlog.metadata.commands import AlterStream
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.origin_circles import all_origins
from streamlog.metadata.stream.setting_type import NO_LIMIT
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.stream_origin import StreamOrigin
from streamlog.partition.partition import Partition
from streamlog.record.batch import batches
from tests.simulation.checkers import Violation
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.partition_checkers import Replica, replica_of
from tests.simulation.cluster.settings import replication_section
from tests.simulation.cluster.swarm import SEGMENT_BYTES, Kind, LeadersEnd, SwarmWorld
from tests.simulation.publisher import Publisher, frame
from tests.simulation.schedule_oracle import Erasure, Message, entries_of
from tests.simulation.sources_oracle import (
    MirrorOracle,
    OriginLog,
    Passed,
    Rule,
    SourcesOracle,
)

ORIGINS: Final = ("a", "b")
FED: Final = "s"
"""The stream with sources."""
MIRROR: Final = "m"
READ_BYTES: Final = 1 << 20
TAKEN: Final = "taken"
"""What the subjects begin with that a source's messages get."""


class SubjectsPublisher(Publisher):
    """Publishes on a few subjects of its stream."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._subjects: dict[int, str] = {}
        """By number."""

    def _try(self, number: int) -> None:
        subject = self._subjects.setdefault(number, self._rng.choice(("s", "x", "y")))
        self._sent_us[number] = self._events.now_us
        self._send(frame(f"{self.name}.{number}", f"{self.name}:{number}", subject=subject))
        self._retry_after(self._timeout_us, number)


class Faults:
    """In the place of a logger: what the product takes for its own fault ends the story."""

    def warning(self, *_: Any, **__: Any) -> None: ...

    def error(self, condition: object, *, extra: object, exc_info: BaseException) -> None:
        raise Violation(f"{condition}: {extra}: {exc_info!r}") from exc_info


class SourcesWorld(SwarmWorld):
    """As its parent; but streams have sources or a mirror, and what they take is held against oracles."""

    NODES = (3,)
    TROUBLE_S = (2, 2, 3)

    def __init__(self, seed: int) -> None:
        drawn = random.Random(f"sources {seed}")
        self._sources = self._draw_sources(drawn)
        self._mirrored = drawn.choice(("a", "a", FED))
        self._logs: dict[Replica, OriginLog] = {}
        self._by_identity: dict[str, OriginLog] = {}
        self._by_name: dict[str, OriginLog] = {}
        """Those that are there."""
        self._identities: dict[str, str] = {}
        """Of the same."""
        self._oracles: dict[Replica, SourcesOracle | MirrorOracle] = {}
        super().__init__(seed)
        self.sync = "commit"
        self.of_nodes = {"has_feeds": True}
        self.publishers.kinds = [(1, SubjectsPublisher), (4, SubjectsPublisher)]
        partitions = self.observer.partitions
        partitions.committed = self._committed
        self._may_hold = partitions.matching.may_hold
        partitions.matching.may_hold = self._may_hold_in
        rng = self.rng
        if rng.random() < 0.3:
            self.replication = replication_section(fetch_bytes_max=1)  # a batch at a time
        self._limits: dict[ModuleType, dict[str, object]] = {
            fed_partition: {
                "PENDING_BYTES_MAX": rng.choice((1, 8 << 20)),
                "PLACES_EVERY": rng.choice((5, 50, 20_000)),
                "READ_BYTES": rng.choice((500, 4 << 20)),
                "RUN_BYTES": rng.choice((500, 512 << 10)),
                "SCAN_OFFSETS": rng.choice((1, 10, 1_000)),
            },
            origin_batches: {"BATCH_BYTES": rng.choice((500, 512 << 10))},
            origin_feeds: {"READ_LIMIT": rng.choice((1, 5, 5_000))},
            stream_source: {"NEAR_END": rng.choice((1, 2_000)), "READ_MIN": rng.choice((1, 1_000))},
            mirror_service: {"logger": Faults()},
        }

    def run(self) -> None:
        """With limits that a few messages reach."""
        with ExitStack() as stack:
            for module, limits in self._limits.items():
                for name, limit in limits.items():
                    stack.enter_context(patch.object(module, name, limit))
            super().run()

    def always(self) -> list[Kind]:
        return [self._kill_a_leader, self._elect_another]

    def faults(self) -> list[Kind]:
        return [*super().faults(), self._erase, self._erase]

    # Streams

    def _draw_sources(self, rng: random.Random) -> list[dict[str, Any]]:
        """Of the stream that has some; one origin may be there twice, for other subjects."""
        found = list[dict[str, Any]]()
        for name in ORIGINS:
            fields: list[dict[str, Any]] = [
                {},
                {"filter_subject": f"{name}.x"},
                {"filter_subject": f"{name}.y"},
                {"subject_transforms": [{"src": f"{name}.x", "dest": f"{TAKEN}.{name}.x"}]},
                {
                    "subject_transforms": [
                        {"src": f"{name}.*", "dest": TAKEN + "." + name + ".{{wildcard(1)}}"}
                    ]
                },
            ]
            chosen = rng.choice(((0,), (0,), (1,), (1, 2), (3,), (3, 2), (4,)))
            found += [{"name": name, **fields[it]} for it in chosen]
        return found

    def _make_configs(self, nodes: int) -> list[StreamConfig]:
        return [self._config(name, nodes) for name in (*ORIGINS, FED, MIRROR)]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        rng = self.rng
        replicas = rng.choice((1, 2, 3, 3))
        fields: dict[str, Any] = {
            "name": name,
            "replicas": replicas,
            "min_isr": rng.choice((None, 1, replicas)),
            "segment_bytes": rng.choice((SEGMENT_BYTES, None)),
            "encrypted": rng.random() < 0.2,
        }
        if name == MIRROR:
            fields["mirror"] = json.dumps({"name": self._mirrored, **self._mirrors_filter(rng)})
        elif name == FED:
            fields["sources"] = json.dumps(self._sources)
            fields["retention_messages"] = rng.choice((NO_LIMIT, NO_LIMIT, 3, 10, 40))
            if rng.random() < 0.3:
                fields["subjects"] = (name, f"{name}.>")
        else:
            fields["subjects"] = (name, f"{name}.>")
        return StreamConfig.of(**fields)

    def _mirrors_filter(self, rng: random.Random) -> dict[str, str]:
        if self._mirrored == FED:
            return {}
        return rng.choice(({}, {"filter_subject": f"{self._mirrored}.x"}))

    def _is_created(self, stream: StreamImage) -> None:
        if stream.config.subjects:
            super()._is_created(stream)
        elif stream.name not in self._created:
            self._created.add(stream.name)
            self.troubles.tell(f"stream {stream.name} is created")

    def _look_at_stream(self, name: str, old: StreamImage | None, new: StreamImage | None) -> None:
        if new is not None and (old is None or old.stream_id != new.stream_id):
            self._note(new)
        super()._look_at_stream(name, old, new)

    def _note(self, stream: StreamImage) -> None:
        """It is new."""
        replica, config = Replica(stream.stream_id, 0), stream.config
        committed = self.observer.partitions.log_of(replica)
        committed.has_gaps = bool(config.mirror)
        if config.retention_messages != NO_LIMIT:
            committed.messages_max, committed.forgets_ids = config.retention_messages, True

        # Of a stream that was made again, messages that are older than it by more than clocks differ count as those of
        # a backup.
        is_again, created_ms = stream.name in self._by_name, stream.created_ms - CLOCKS_MS

        def is_gone(offset: int) -> bool:
            start = max(committed.purge_asked, committed.log_start)
            is_older = is_again and log.messages[offset].timestamp_ms < created_ms
            return offset < start or offset in committed.erased or is_older

        log = self._logs[replica] = OriginLog(stream.name, is_gone)
        identity = identity_of(stream.stream_id)
        self._by_identity[identity], self._by_name[stream.name] = log, log
        self._identities[stream.name] = identity
        rules = [Rule(it, taking(it)) for it in all_origins(config)]
        name = f"{stream.name} ({replica})"
        if config.sources:
            self._oracles[replica] = SourcesOracle(name, rules, self._by_identity)
        elif config.mirror:
            self._oracles[replica] = MirrorOracle(name, rules[0], self._by_name)

    def _delete(self, name: str) -> None:
        """A mirror does not go on with another origin of that name."""
        if name != self._mirrored:
            super()._delete(name)

    # What is told

    def _may_hold_in(self, replica: Replica, message_id: str) -> bool:
        """An oracle judges what is taken of others."""
        return replica in self._oracles or self._may_hold(replica, message_id)

    def _committed(self, replica: Replica, log: PartitionLog, start: int, end: int) -> None:
        for entry in _entries(log, start, end):
            self._logs[replica].take(entry)
            if replica in self._oracles:
                self._oracles[replica].take(entry)

    def _missing(self) -> list[Passed]:
        there = [Replica(it.stream_id, 0) for it in self.observer.newest.streams.values()]
        oracles = [self._oracles[it] for it in there if it in self._oracles]
        return [it for oracle in oracles for it in oracle.missing(self._identities)]

    # Trouble

    async def _cut(self, partition: Partition, offset: int) -> None:
        if partition.config.sources:
            await purge.cut(partition, offset)
        else:
            await super()._cut(partition, offset)

    def _erase(self) -> None:
        """A message, or all of a subject, is deleted by an operator."""
        led = [
            (node, partition)
            for node in self.nodes()
            if node.is_at_work
            for partition in node.registry.partitions()
            if partition.is_leader
            and not partition.config.mirror
            and partition.high_watermark > partition.log_start_offset
        ]
        if led:
            self._erase_at(*self.rng.choice(led))

    def _erase_at(self, node: ClusterNode, partition: Partition) -> None:
        """Its log says what has gone by that."""
        rng, tp = self.rng, partition.tp
        messages = self._logs[replica_of(partition)].messages
        offset = rng.randrange(partition.log_start_offset, partition.high_watermark)
        if offset not in messages:
            return
        subject = messages[offset].subject if rng.random() < 0.5 else ""
        told = f"deletion of {subject or offset} in {tp}"
        self.troubles.tell(f"{told} asked of node {node.host.node_id}")

        async def erase() -> None:
            if not partition.high_watermark_known or not node.metadata.lease.held:
                return
            try:
                if subject:
                    await purge.purge(partition, pattern=subject)
                else:
                    await purge.delete(partition, offset + 1)
            except StreamlogError as error:
                self.troubles.tell(f"{told}: not done: {error!r}")
                return
            self.troubles.tell(f"{told} is acknowledged")

        node.loop.call_soon(lambda: node.spawn(erase()))

    # The end

    def _is_well(self) -> bool:
        return super()._is_well() and not self._too_many() and not self._missing()

    def _too_many(self) -> list[str]:
        """Logs that have more than their limit of messages."""
        return [
            str(it.tp)
            for node in self.nodes()
            for it in node.registry.partitions()
            if it.is_leader and 0 <= it.config.retention_messages < _count(it)
        ]

    def _state(self) -> str:
        missing = [str(it) for it in self._missing()]
        return "\n".join([*missing[:5], *self._too_many(), super()._state()])


class FedLeadersEnd(LeadersEnd, SourcesWorld):
    """Little else than that: the leaders end, or are cut off, that have appended what others had, and it is not
    committed.
    """

    def faults(self) -> list[Kind]:
        return [self._be_slow, self._erase, self._purge, self._act_late]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return super()._config(name, nodes).changed(replicas=3, min_isr=self.rng.choice((1, 2)))

    def _place(self) -> tuple[StreamImage, int] | None:
        """Of these, more often than of their origins."""
        fed = [it for name, it in sorted(self._known.items()) if it.config.is_fed]
        if fed and self.rng.random() < 0.7:
            return self.rng.choice(fed), 0
        return super()._place()

    def _is_behind(self, partition: Partition) -> bool:
        return partition.config.is_fed and super()._is_behind(partition)

    def _while_cut_off(self) -> None:
        """One that was cut off leads again, perhaps, while its process knows of what it had."""
        rng = self.rng
        for _ in range(3):
            self.events.after(rng.randint(0, 500_000), rng.choice((self._erase, self._purge)))
        self.events.after(rng.randint(1_000_000, 2_500_000), self._elect_another)


class GapsAreCut(FedLeadersEnd):
    """The leader of a mirror ends when a follower has a gap of it, and not the erasure that names it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.replication = replication_section(fetch_bytes_max=1)  # a batch at a time

    def _mirrors_filter(self, rng: random.Random) -> dict[str, str]:
        return {} if self._mirrored == FED else {"filter_subject": f"{self._mirrored}.x"}

    def _is_behind(self, partition: Partition) -> bool:
        return bool(partition.config.mirror) and super()._is_behind(partition)


class FeedsRestart(SourcesWorld):
    """An operator makes streams read-only for a moment, so that their feeds end and begin; meanwhile others purge
    them.
    """

    def always(self) -> list[Kind]:
        return [self._restart_a_feed, self._restart_a_feed]

    def faults(self) -> list[Kind]:
        return [self._act_late, self._restart_a_feed]

    def _restart_a_feed(self) -> None:
        fed = sorted(name for name, it in self._known.items() if it.config.sources)
        if not fed:
            return
        rng, name = self.rng, self.rng.choice(fed)
        for readonly in (True, False):
            delay_us = rng.randint(0, 50_000)
            for _ in range(5):
                self.events.after(delay_us + rng.randint(0, 30_000), self._purge)
            self.events.after(delay_us, partial(self._be_readonly, name, readonly))

    def _be_readonly(self, name: str, readonly: bool) -> None:
        change = SettingChange(setting="readonly", text=str(readonly).lower())
        self._ask(AlterStream(name=name, changes=(change,)))

    def _undo(self) -> None:
        super()._undo()
        for stream in self.observer.newest.streams.values():
            if stream.config.readonly:
                self._be_readonly(stream.name, False)


def taking(origin: StreamOrigin) -> Callable[[str], str | None]:
    """What an origin's messages become, by the few filters and transforms that there are here."""

    def takes(subject: str) -> str | None:
        stream, _, token = subject.partition(".")
        if origin.filter_subject:
            return subject if subject == origin.filter_subject else None
        for it in origin.transforms:
            if token and it.src in (subject, f"{stream}.*"):
                return f"{TAKEN}.{stream}.{token}"
        return None if origin.transforms else subject

    return takes


def _count(partition: Partition) -> int:
    start, end = partition.log_start_offset, partition.high_watermark
    return end - start - partition.erased.count(start, end)


def _entries(log: PartitionLog, start: int, end: int) -> Iterator[Message | Erasure]:
    while start < end:
        with log.read(start, READ_BYTES, log.log_end_offset) as piece:
            data = piece.read()
        yield from entries_of(data, start, end)
        for header, _ in batches(memoryview(data)):
            start = header.next_offset
