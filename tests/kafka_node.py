"""The socket API over partitions of a few lines, for tests of the server and of its clients."""

import asyncio
import ssl
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from streamlog.config import (
    MIB,
    ClientAuth,
    GroupsSection,
    KafkaSection,
    LogSection,
    NodeSection,
    SaslSection,
    SecuritySection,
    Settings,
    TlsSection,
    TransactionsSection,
)
from streamlog.control.service import ControlService
from streamlog.errors import NodeUnreachable, PartitionNotFound
from streamlog.groups.service import GroupService
from streamlog.kafka.auth.authenticator import Authenticator
from streamlog.kafka.context import Context
from streamlog.kafka.net.listener import Listener
from streamlog.kafka.producer_ids import ProducerIds
from streamlog.metadata.read_barrier import catch_up
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM, StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import TopicPartition
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.shares.share_service import ShareService
from streamlog.transactions.marker_sender import MarkerSender
from streamlog.transactions.service import TransactionService
from tests.fake_metadata import FakeMetadata
from tests.fake_partition import NODE, FakePartition
from tests.offsets_partition import OffsetsPartitions


async def until(condition: Callable[[], bool]) -> None:
    """Lets the server work until it is so."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for does not know of us
            await asyncio.sleep(0.001)


class NoOtherNodes:
    """``marker_sender.MarkerNodes`` of a node that is alone."""

    async def write_markers(self, *_: Any, **__: Any) -> Any:
        raise NodeUnreachable("there is no other node")

    def close(self) -> None:
        pass


class KafkaNode:
    """A listener on a free port, over fake partitions and metadata that are not logged."""

    def __init__(
        self,
        groups: GroupsSection | None = None,
        transactions: TransactionsSection | None = None,
        *,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        sasl: SaslSection | None = None,
        optional: bool = False,
        client_auth: ClientAuth = "none",
        **settings: Any,
    ) -> None:
        self.settings = KafkaSection(**{"port": 0, **settings})
        self.metrics = NodeMetrics()
        self.local: dict[TopicPartition, FakePartition] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="streamlog-test-")
        self.directory = Path(self._directory.name)
        self.node_settings = Settings.model_construct(
            node=NodeSection(id=NODE, data_dir=self.directory, rack="r1"),
            kafka=self.settings,
            log=LogSection(segment_bytes=8 * MIB),
            sasl=sasl or SaslSection(),
            security=SecuritySection(permissive=optional),
            tls=TlsSection.model_construct(client_auth=client_auth),
        )
        self.metadata = FakeMetadata(self.local, self.directory)
        self.offsets: Any = OffsetsPartitions()
        self.groups = GroupService(
            node_id=NODE,
            settings=groups or GroupsSection(),
            metadata=self.metadata,
            partitions=self.offsets,  # type: ignore[arg-type]
        )
        self.markers = MarkerSender(
            NODE,
            lambda: self.metadata.image,
            NoOtherNodes(),
            here=self._end_transaction,
            catch_up=partial(catch_up, self.metadata),
        )
        self.producer_ids = ProducerIds()
        self.transactions = TransactionService(
            node_id=NODE,
            settings=transactions or TransactionsSection(),
            metadata=self.metadata,
            partitions=self.offsets,  # type: ignore[arg-type]
            markers=self.markers,
            new_producer_id=partial(self.producer_ids.take, self.metadata, NODE),
        )
        self.authenticator = (
            None
            if sasl is None
            else Authenticator.load(sasl, lambda: self.metadata.image, is_demanded=not optional)
        )
        self.control = ControlService(
            node_id=NODE,
            metadata=self.metadata,
            partitions=cast("Any", self),
            peers=cast("Any", None),
            node_user=self.node_settings.sasl.node_user,
            groups=self.groups,
            transactions=self.transactions,
            data_dir=self.directory,
        )
        self.shares = ShareService(settings=self.groups.settings, keeper=self.control.coordinators)
        self.context = Context(
            node_id=NODE,
            address=lambda: self.listener.address,
            settings=self.settings,
            partitions=cast("Any", self),
            metadata=self.metadata,
            metrics=self.metrics,
            groups=self.groups,
            transactions=self.transactions,
            producer_ids=self.producer_ids,
            node_settings=self.node_settings,
            authenticator=self.authenticator,
            tls=tls,
            shares=self.shares,
            control_service=self.control,
            transaction_partitions=self.control.transactions,
        )
        self.listener = Listener(self.context)

    async def _end_transaction(self, tp: TopicPartition, marker: TransactionMarker) -> None:
        if tp.stream == OFFSETS_STREAM:
            await self.groups.end_transaction(tp, marker)
        else:
            await self.partition(tp).end_transaction(marker)

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.listener.address)

    @property
    def port(self) -> int:
        return self.listener.address[1]

    def partitions(self) -> Iterator[FakePartition]:
        return iter(list(self.local.values()))

    def partition(self, tp: TopicPartition) -> FakePartition:
        if tp not in self.local:
            raise PartitionNotFound(str(tp))
        return self.local[tp]

    async def add_stream(self, name: str, partitions: int = 1, **settings: object) -> FakePartition:
        """The stream's first partition."""
        await self.metadata.create_stream(
            StreamConfig.of(name=name, partitions=partitions, **settings)
        )
        return self.local[TopicPartition(name, 0)]

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def __aenter__(self) -> "KafkaNode":
        self.listener.open()
        self.metadata.register(self.port)
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._tasks.create_task(self.listener.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.listener.stop()
            await self._tasks.__aexit__(kind, error, traceback)  # raises what the body raised
        finally:
            self.close()  # else the files are found open in the middle of another test

    def close(self) -> None:
        """Of who has not listened, too."""
        for partition in self.local.values():
            partition.close()
        self._directory.cleanup()


CALL_TIMEOUT_S: Final = 30.0
T = TypeVar("T")


class ThreadedNode:
    """``with ThreadedNode() as node``; ``node.call`` does something where the node lives."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.node: KafkaNode

    def __enter__(self) -> Self:
        self._thread.start()
        self.node = self.wait(self._make())
        self.wait(self.node.__aenter__())
        return self

    async def _make(self) -> KafkaNode:
        return KafkaNode(**self._settings)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wait(self.node.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self._loop.close()

    @property
    def address(self) -> str:
        return self.node.address

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    def call(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self.wait(run())

    def add_stream(self, name: str, partitions: int = 1) -> FakePartition:
        """Its first partition."""
        return self.wait(self.node.add_stream(name, partitions))

    def delete_stream(self, name: str) -> None:
        self.wait(self.node.metadata.delete_stream(name))

    def partition(self, stream: str, number: int = 0) -> FakePartition:
        return self.node.local[TopicPartition(stream, number)]

    def append(self, stream: str, values: list[bytes], number: int = 0, **batch: Any) -> None:
        """One batch, committed."""
        self.call(lambda: self.partition(stream, number).append(values, **batch))
