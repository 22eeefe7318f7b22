"""Files of a node that are lost or changed: which ones, how, and what is right afterwards."""

import asyncio
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import nats
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamlog.cli.cluster.controller import Controller, ask
from streamlog.errors import StreamlogError
from streamlog.log.tools.verify import Aside, CheckedFolder, verify
from tests.checkpoints import offsets_in
from tests.history import Lane
from tests.watermarks import watermarks
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.replica_log import ReplicaLog, differences, holes
from tools.nodes.server_process import wait_until

VICTIM: Final = 1
OTHERS: Final = (2, 3)
SMALL: Final[Settings] = {"log": {"segment_bytes": 8192, "scrub_interval_ms": 1000}}
VALUE_BYTES, OTHER_BYTES = 400, 300
"""Of all streams, and of the one whose files have other sizes."""
WAVE, WAVES, SINGLES = 5, 9, 12
"""Three waves of Kafka's fill a segment; the messages of NATS are in the active one."""
OLD_AT: Final = {"first": 1, "active": WAVES + 4}
"""After so many waves the older copy is taken; else after ``OLD``."""
OLD: Final = 5
PATIENCE_S: Final = 60.0

TWIN, OTHER = "donor-twin", "donor-more"
"""Streams with the same sizes, and with other ones. Names have one length: they are in headers."""


class Case(NamedTuple):
    """One blow to one stream's replica on the victim."""

    kind: str
    blow: str
    role: str
    state: str

    def __str__(self) -> str:
        return f"{self.kind} {self.blow} on the {self.role} {self.state}"


def files_of(kind: str, folder: Path) -> list[Path]:
    """Those of a partition's folder that ``kind`` means."""
    logs = sorted(folder.glob("*.log"))
    match kind:
        case "first" | "middle":
            return [logs[("first", "middle").index(kind)]]
        case "active":
            return [logs[-1]]
        case "folder":
            return [folder]
        case _:
            return sorted(folder.glob(kind))


def strike(blow: str, path: Path, *, old: Path, twin: Path, other: Path) -> bool:
    """Whether there was anything to strike."""
    if path.is_dir():
        return _strike_folder(blow, path, old=old, twin=twin, other=other)
    match blow:
        case "removed":
            path.unlink()
        case "emptied":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        case "flipped":
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0x10
            path.write_bytes(data)
        case _:
            source = {"older": old, "alike": twin, "swapped": other}[blow]
            if not source.exists() or source.read_bytes() == path.read_bytes():
                return False
            path.write_bytes(source.read_bytes())
    return True


def _strike_folder(blow: str, path: Path, *, old: Path, twin: Path, other: Path) -> bool:
    if blow in ("cut", "flipped"):
        return False
    shutil.rmtree(path)
    if blow == "emptied":
        path.mkdir()
    elif blow != "removed":
        shutil.copytree({"older": old, "alike": twin, "swapped": other}[blow], path)
    return True


class Field:
    """A stream for each case, and what stock clients were acknowledged of it."""

    def __init__(self, cluster: Cluster, cases: Sequence[Case], copies: Path) -> None:
        self.cluster = cluster
        self.copies = copies
        self.cases = {f"case-{i:05d}": case for i, case in enumerate(cases)}
        self.acked: dict[str, dict[int, bytes]] = {name: {} for name in (*self.cases, TWIN, OTHER)}
        self.start = 0
        """What is below was purged of all streams."""
        self.nothing_to_strike: list[Case] = []

    @property
    def victim(self) -> NodeProcess:
        return self.cluster[VICTIM]

    def folder(self, name: str) -> Path:
        return self.victim.data_dir / "streams" / name / "0"

    async def fill(self) -> None:
        """Through Kafka at first, then through NATS. Older copies are taken meanwhile."""
        self._create()
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.servers,
                "acks": "all",
                "batch.num.messages": WAVE,
                "linger.ms": 50,
            }
        )
        for wave in range(1, WAVES + 1):
            await asyncio.to_thread(self._wave, producer, wave)
            if wave in (OLD, OLD_AT["first"]):
                await asyncio.to_thread(self._copy, wave)
        client = await nats.connect(self.cluster.nats.url)
        try:
            js = client.jetstream(domain="streamlog", timeout=20)
            for number in range(SINGLES):
                if number == OLD_AT["active"] - WAVES:
                    await asyncio.to_thread(self._copy, OLD_AT["active"])

                async def publish(name: str, number: int = number) -> None:
                    value = self._value(name, WAVES * WAVE + number)
                    headers = {"Nats-Msg-Id": f"{number:04d}"}
                    ack = await js.publish(name, value, headers=headers, timeout=20)
                    self._note(name, ack.seq - 1, value)

                await asyncio.gather(*map(publish, self.acked))
        finally:
            await client.close()
        await asyncio.to_thread(self.wait_checkpointed)

    def purge(self, start: int) -> None:
        """Kafka's DeleteRecords, of all streams."""
        admin = AdminClient({"bootstrap.servers": self.cluster.servers, "log_level": 0})
        asked = admin.delete_records([TopicPartition(name, 0, start) for name in self.acked])
        for future in asked.values():
            assert future.result(PATIENCE_S).low_watermark == start
        self.start = start

    def _create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.servers, "log_level": 0})
        config = {"min.insync.replicas": "2"}
        replicas = [VICTIM, *OTHERS]
        topics = [
            NewTopic(name, 1, replica_assignment=[replicas], config=config) for name in self.acked
        ]
        for future in admin.create_topics(topics).values():
            future.result(60)
        self.cluster.wait_settled([Lane(name) for name in self.acked], 60)

    def _wave(self, producer: Producer, wave: int) -> None:
        problems: list[object] = []
        now_ms = int(time.time() * 1000)
        for name in self.acked:
            for number in range((wave - 1) * WAVE, wave * WAVE):

                def told(error: object, message: object, name: str = name) -> None:
                    if error is not None:
                        problems.append(error)
                    else:
                        self._note(name, message.offset(), message.value())  # type: ignore[attr-defined]

                value = self._value(name, number)
                producer.produce(name, value, partition=0, timestamp=now_ms, on_delivery=told)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        assert problems == []

    @staticmethod
    def _value(name: str, number: int) -> bytes:
        size = OTHER_BYTES if name == OTHER else VALUE_BYTES
        return b"%s %05d " % (name.encode(), number) + b"x" * size

    def _note(self, name: str, offset: int, value: bytes) -> None:
        assert offset not in self.acked[name], f"{name}: {offset} is acknowledged twice"
        self.acked[name][offset] = value

    def wait_checkpointed(self) -> None:
        """What a node forgets with its last second is another matter."""
        file = self.victim.data_dir / "recovery-point-offset-checkpoint"

        def is_noted() -> bool:
            noted = offsets_in(file)
            return all(noted.get((name, 0)) == len(acked) for name, acked in self.acked.items())

        wait_until(is_noted, "the recovery points are noted", PATIENCE_S)

    def _copy(self, wave: int) -> None:
        shutil.copytree(
            self.victim.data_dir,
            self.copies / str(wave),
            ignore=shutil.ignore_patterns("*.tmp", "reserve"),
        )

    def old(self, kind: str) -> Path:
        """An older copy of the victim's data folder."""
        return self.copies / str(OLD_AT.get(kind, OLD))

    def strike(self, state: str) -> list[str]:
        """All streams of ``state``; their names."""
        chosen = [name for name, case in self.cases.items() if case.state == state]
        for name in chosen:
            case, folder = self.cases[name], self.folder(name)
            old = self.old(case.kind) / "streams" / name / "0"
            twins = files_of(case.kind, self.folder(TWIN))
            others = files_of(case.kind, self.folder(OTHER))
            struck = False
            for i, path in enumerate(files_of(case.kind, folder)):
                struck |= strike(
                    case.blow,
                    path,
                    old=old if path == folder else old / path.name,
                    twin=twins[min(i, len(twins) - 1)],
                    other=others[min(i, len(others) - 1)],
                )
            if not struck:
                self.nothing_to_strike.append(case)
        return chosen

    def strike_node(self, kind: str, blow: str) -> list[Path]:
        """Files of the victim's data folder; those that were struck. Others come from the node
        beside it.
        """
        folder, beside = self.victim.data_dir, self.cluster[OTHERS[0]].data_dir
        others = sorted(beside.glob(kind))
        found = []
        for i, path in enumerate(sorted(folder.glob(kind))):
            name = path.relative_to(folder)
            other = beside / name
            if not other.exists():
                other = others[min(i, len(others) - 1)]
            if strike(blow, path, old=self.old(kind) / name, twin=other, other=other):
                found.append(path)
        return found

    # Judgement

    def lead(self, node: int, names: Iterable[str]) -> None:
        """Have ``node`` lead all of these."""

        async def elect(controller: Controller) -> None:
            for name in names:
                await controller.operate("placement.elect", stream=name, partition=0, leader=node)

        names = list(names)
        ask(",".join(it.kafka for it in self.cluster.running()), elect)
        lanes = [Lane(name) for name in names]

        def is_led() -> bool:
            parts = self.cluster[node].view().partitions
            return all(parts[lane].leader == node for lane in lanes)

        wait_until(is_led, f"node {node} leads", PATIENCE_S)

    def wait_whole(
        self, names: Sequence[str], patience_s: float = PATIENCE_S
    ) -> dict[str, list[str]]:
        """Until all replicas are in sync and have the same bytes; what is wrong at the end."""
        deadline = time.monotonic() + patience_s
        left, wrong = list(names), dict[str, list[str]]()
        while left and time.monotonic() < deadline:
            parts = self.cluster.view().partitions
            wrong = {name: self._problems(name, parts[Lane(name)].is_whole) for name in left}
            left = [name for name in left if wrong[name]]
        return {str(self.cases.get(name, name)): wrong[name] for name in left}

    def _problems(self, name: str, is_whole: bool) -> list[str]:
        if not is_whole:
            return ["not all replicas are in sync"]
        try:
            logs = [self.cluster[it].replica(Lane(name)) for it in (VICTIM, *OTHERS)]
        except (StreamlogError, OSError) as error:
            return [repr(error)]
        return [*differences(logs, len(self.acked[name])), *self._odd(name, logs)]

    def _odd(self, name: str, logs: Sequence[ReplicaLog]) -> list[str]:
        problems = [problem for log in logs for problem in holes(log)]
        for log in logs:
            if log.records and log.start > self.start:
                problems.append(f"{log.name}: starts at {log.start}")
            found = {it.offset: it.value for it in log.records if it.offset >= self.start}
            if found != self._kept(name):
                problems.append(f"{log.name}: has not what was acknowledged")
        return problems

    def _kept(self, name: str) -> dict[int, bytes]:
        """What was acknowledged, and not purged."""
        return {at: value for at, value in self.acked[name].items() if at >= self.start}

    def unread(self, names: Sequence[str]) -> dict[str, str]:
        """What a stock consumer does not get as it was acknowledged, by case."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.servers,
                "group.id": "test",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "log_level": 0,
            }
        )
        kept = {name: self._kept(name) for name in names}
        found: dict[Any, dict[Any, Any]] = {name: {} for name in names}
        errors: dict[Any, str] = {}
        starts: dict[str, int] = {}
        try:
            consumer.assign([TopicPartition(name, 0, self.start) for name in names])
            deadline = time.monotonic() + PATIENCE_S
            missing = set(names)
            while missing and time.monotonic() < deadline:
                for message in consumer.consume(10_000, timeout=0.5):
                    if message.error():
                        errors[message.topic()] = str(message.error())
                    else:
                        found[message.topic()][message.offset()] = message.value()
                missing = {name for name in missing if len(found[name]) < len(kept[name])}
            for name in names:
                starts[name] = self._start_of(name, consumer)
        finally:
            consumer.close()
        return {
            str(self.cases.get(name, name)): (
                f"{errors.get(name, '')} from {starts[name]} on {len(found[name])} of "
                f"{len(kept[name])}; wrong at "
                f"{[at for at, value in kept[name].items() if found[name].get(at) != value]}"
            )
            for name in names
            if found[name] != kept[name] or starts[name] != self.start
        }

    @staticmethod
    def _start_of(name: str, consumer: Consumer) -> int:
        """As the leader tells it."""
        return watermarks(consumer, TopicPartition(name, 0), PATIENCE_S)[0]

    def findings(self, besides: Iterable[str]) -> list[str]:
        """What ``streamlog log verify`` says of the victim's streams, but not of these."""
        return [
            str(item)
            for name in self.acked.keys() - set(besides)
            for item in verify(self.victim.data_dir / "streams" / name)
            if not isinstance(item, (Aside, CheckedFolder))
        ]
