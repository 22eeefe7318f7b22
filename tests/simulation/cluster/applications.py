"""Stories with applications of Kafka: programs on machines of their own, which are killed, stand still, and are
replaced while they go on.

All nodes coordinate groups and transactions. The world knows what is committed of each partition of users, and what
of that a reader of committed records may see.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final
from uuid import UUID

from streamlog.config import GroupsSection, TransactionsSection
from streamlog.errors import StreamlogError
from streamlog.log.log import PartitionLog
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig, is_internal
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.partition import Partition
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.kafka_client import KafkaClient, Process
from tests.simulation.cluster.links import NATS
from tests.simulation.cluster.node import Coordination
from tests.simulation.cluster.partition_checkers import MARKER, Replica, replica_of
from tests.simulation.cluster.swarm import Kind, SwarmWorld
from tests.simulation.cluster.transaction_checkers import DecidedLog, Transactions, check_committed
from tests.simulation.cluster.transactional_producer import Numbers, TransactionalProducer

INPUT: Final = "in"
PARTITIONS: Final = 2
"""Of each stream."""
RESTART_US: Final = (1_000, 1_500_000)
STRIKES_US: Final = (200_000, 1_500_000)
"""Between a leader and the next one that is killed at something."""
PAUSED_US: Final = (50_000, 6_000_000)
TIMEOUTS_MS: Final = (1_000, 2_500, 6_000)
"""Of transactions."""
COORDINATION: Final = Coordination(
    GroupsSection(offsets_partitions=2), TransactionsSection(state_partitions=2)
)

Program = Callable[[KafkaClient], Coroutine[Any, Any, None]]


class Application:
    """What is to be done, and started again until it is done; each start is on another machine."""

    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self.program = program
        self.host: Host | None = None
        """The last one."""
        self.former: list[Host] = []
        """Those that were replaced while they ran."""
        self.is_done = False


class ApplicationsWorld(SwarmWorld):
    """A swarm of faults, and those of applications."""

    NODES: tuple[int, ...] = (3, 3, 3, 4)
    STREAMS: tuple[str, ...] = (INPUT,)
    COORDINATION: Coordination = COORDINATION

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sync = "commit"
        self.of_nodes = {"coordination": self.COORDINATION}
        self.transactions = Transactions()
        self.decided: dict[Replica, DecidedLog] = {}
        self.applications: list[Application] = []
        self._numbers = Numbers()
        self._machines: set[Host] = set()
        """Of applications, all there ever were."""
        self._names: set[str] = set()
        self._has_begun = False
        self._struck_at: Callable[[Partition], bool] | None = None
        """A leader is killed as soon as this holds of its partition, again and again."""
        self._strikes_us = 0
        """Not before that."""
        partitions = self.observer.partitions
        partitions.committed = self._take_in
        published = partitions.matching.may_hold
        partitions.matching.may_hold = lambda replica, message_id: (
            message_id.startswith(MARKER)
            or message_id.partition(":")[0] in self._names
            or published(replica, message_id)
        )

    def faults(self) -> list[Kind]:
        troubles = self.troubles
        return [
            troubles.kill,
            troubles.power,
            troubles.power_of_all,
            troubles.power_in_a_call,
            troubles.stop,
            troubles.isolate,
            troubles.split,
            troubles.cut_one_way,
            troubles.storm,
            troubles.slow_disk,
            troubles.fail_disk,
            troubles.fill_disk,
            troubles.jump,
            self._restart_in_order,
            self._kill_a_leader,
            self._cut_a_leader_off,
            self._elect_another,
            self._act_late,
            self._move,
            self._move_away_and_back,
        ]

    def always(self) -> list[Kind]:
        return [self._kill_an_application, self._pause_an_application, self._replace_an_application]

    # Streams

    def _make_configs(self, nodes: int) -> list[StreamConfig]:
        return [self._config(name, nodes) for name in self.STREAMS]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        replicas = self.rng.choice((1, 2, 3, 3, 3))
        return StreamConfig.of(
            name=name,
            partitions=PARTITIONS,
            replicas=replicas,
            min_isr=self.rng.choice((None, 1, replicas)),
        )

    def _look_at_stream(self, name: str, old: StreamImage | None, new: StreamImage | None) -> None:
        """Leaders of internal streams are struck as others are; nobody deletes one."""
        if not is_internal(name):
            super()._look_at_stream(name, old, new)
        elif new is not None:
            self._known[name] = new

    def _is_created(self, stream: StreamImage) -> None:
        if stream.name in self._created:
            return
        self._created.add(stream.name)
        self.troubles.tell(f"stream {stream.name} is created")
        self._created_one(stream)
        if len(self._created) == len(self.configs) and not self._has_begun:
            self._has_begun = True
            self._begin_applications()

    def _created_one(self, stream: StreamImage) -> None:
        """Nobody publishes to it over NATS."""

    def _take_in(self, replica: Replica, log: PartitionLog, start: int, end: int) -> None:
        stream = self._stream_of(replica.stream_id)
        tp = TopicPartition(stream.name, replica.partition)
        if is_internal(stream.name):
            self._take_in_internal(tp, log, start, end)
            return
        known = self.decided.get(replica)
        if known is None:
            known = self.decided[replica] = DecidedLog(tp, self.transactions)
        known.take_in(log, start, end)

    def _take_in_internal(
        self, tp: TopicPartition, log: PartitionLog, start: int, end: int
    ) -> None:
        """Something is committed of what coordinators keep."""

    def _stream_of(self, stream_id: UUID) -> StreamImage:
        streams = self.observer.newest.streams.values()
        return next(it for it in streams if it.stream_id == stream_id)

    def log_of(self, tp: TopicPartition) -> DecidedLog | None:
        return next((it for it in self.decided.values() if it.tp == tp), None)

    def places(self, stream: str) -> list[TopicPartition]:
        return [TopicPartition(stream, number) for number in range(PARTITIONS)]

    # Applications

    def _begin_applications(self) -> None:
        """All streams are there."""
        raise NotImplementedError

    def begin_application(self, name: str, program: Program) -> None:
        application = Application(name, program)
        self._names.add(name)
        self.applications.append(application)
        self._start_application(application)

    def _start_application(self, application: Application) -> None:
        host = Host(NodeId(NATS), self.events, self.rng)
        self.tcp.add(host)
        self._machines.add(host)
        application.host = host
        client = KafkaClient(host, self.tcp, sorted(self.hosts))
        process = Process(host, partial(self._application_failed, application, host))
        host.start(process)
        self.troubles.tell(f"{application.name} starts")

        async def run() -> None:
            await application.program(client)
            if application.host is host:
                application.is_done = True
                self.troubles.tell(f"{application.name} is done")

        process.begin(run())

    def _application_failed(
        self, application: Application, host: Host, error: BaseException
    ) -> None:
        def end() -> None:
            if not isinstance(error, StreamlogError):
                raise error
            self.troubles.tell(f"{application.name} ends: {error!r}")
            host.kill()
            self._restart(application, host)

        self.events.after(0, end)

    def _restart(self, application: Application, former: Host) -> None:
        """Unless another one runs in its place."""

        def start() -> None:
            if application.host is former:
                self._start_application(application)

        self.events.after(self.rng.randint(*RESTART_US), start)

    def _running(self) -> tuple[Application, Host] | None:
        found = [
            (it, it.host)
            for it in self.applications
            if not it.is_done and it.host is not None and it.host.is_up
        ]
        return self.rng.choice(found) if found else None

    def _kill_an_application(self) -> None:
        if (found := self._running()) is not None:
            application, host = found
            self.troubles.tell(f"{application.name} is killed")
            host.kill()
            self._restart(application, host)

    def _pause_an_application(self) -> None:
        if (found := self._running()) is not None:
            application, host = found
            self.troubles.tell(f"{application.name} is stopped")
            self._pause(host)

    def _pause(self, host: Host) -> None:
        host.stop()
        life = host.life

        def resume() -> None:
            if host.life == life:
                host.resume()

        self.events.after(self.rng.randint(*PAUSED_US), resume)

    def _replace_an_application(self) -> None:
        """The one before goes on, perhaps after a while: it is a zombie."""
        if (found := self._running()) is not None:
            application, former = found
            self.troubles.tell(f"{application.name} is replaced")
            application.former.append(former)
            if self.rng.random() < 0.6:
                self._pause(former)
            self._start_application(application)

    @property
    def goes_on(self) -> bool:
        """There is trouble still, and more to be done."""
        return self.events.now_us < self._until_us

    def are_done(self, kind: str) -> bool:
        """All applications whose names begin so."""
        return all(it.is_done for it in self.applications if it.name.startswith(kind))

    def producer(self, client: KafkaClient, name: str, version: int) -> TransactionalProducer:
        """``version``: of transactions, as it speaks them."""
        return TransactionalProducer(
            client,
            name,
            self.transactions,
            self._numbers,
            version=version,
            timeout_ms=self.rng.choice(TIMEOUTS_MS),
        )

    # What is looked at

    def _look_at_all(self) -> None:
        super()._look_at_all()
        for node in self.nodes():
            for partition in node.registry.partitions() if node.ready else ():
                log = self.decided.get(replica_of(partition))
                if log is not None and not (partition.is_damaged or partition.closed):
                    log.look_at_stable_offset(partition.stable_offset, f"node {node.host.node_id}")

    def _look(self) -> None:
        host = Host.latest
        if host in self._machines:
            host = Host.latest = None
        super()._look()
        is_time = self.goes_on and self.events.now_us >= self._strikes_us
        if is_time and host is not None and self._struck_at is not None:
            self._strike_at_once(host, self._struck_at)

    def _strike_at_once(self, host: Host, is_due: Callable[[Partition], bool]) -> None:
        """Before what it has just done leaves the node."""
        node = host.process
        if node is not None and any(it.is_leader and is_due(it) for it in node.partitions()):
            self._strikes_us = self.events.now_us + self.rng.randint(*STRIKES_US)
            self.troubles.kill(host)

    def strike_at_an_append(self, stream: str) -> None:
        """The next leader that has appended to that stream what no follower has yet."""
        self._struck_at = lambda it: (
            it.tp.stream == stream and it.log_end_offset > it.high_watermark
        )

    def strike_at_a_marker(self) -> None:
        """The next leader that has appended a transaction's marker that no follower has yet."""
        self._struck_at = lambda it: (
            not is_internal(it.tp.stream) and bool(it.state.log.transactions.pending)
        )

    # The end

    def _is_well(self) -> bool:
        if self.troubles.over:
            self._resume_applications()
        return (
            self._has_begun
            and super()._is_well()
            and all(it.is_done for it in self.applications)
            and not self._undecided()
        )

    def _resume_applications(self) -> None:
        for application in self.applications:
            for host in (application.host, *application.former):
                if host is not None and host.is_stopped:
                    host.resume()

    def _undecided(self) -> list[str]:
        """Where readers of committed records wait."""
        return [
            f"{partition.tp} on node {node.host.node_id}: {partition.stable_offset} of"
            f" {partition.high_watermark}"
            for node in self.nodes()
            if node.ready
            for partition in node.registry.partitions()
            if partition.stable_offset != partition.high_watermark
        ]

    def run(self) -> None:
        super().run()
        check_committed(self.transactions)
        for log in self.decided.values():
            log.check()

    def _state(self) -> str:
        undone = [it.name for it in self.applications if not it.is_done]
        return f"{undone} are not done; {self._undecided()}\n{super()._state()}"
