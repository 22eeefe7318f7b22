"""The socket API over partitions of a few lines, for tests of the server and of its clients."""

import asyncio
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from streamlog.config import (
    MIB,
    GroupsSection,
    KafkaSection,
    LogSection,
    NodeSection,
    Settings,
)
from streamlog.errors import PartitionNotFound
from streamlog.groups.service import GroupService
from streamlog.kafka.auth.authenticator import Authenticator
from streamlog.kafka.context import Context
from streamlog.kafka.net.listener import Listener
from streamlog.metadata.stream.config import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import TopicPartition
from streamlog.sections import ClientAuth, SaslSection, SecuritySection, TlsSection
from tests.fake_metadata import FakeMetadata
from tests.fake_partition import NODE, FakePartition
from tests.offsets_partition import OffsetsPartitions


async def until(condition: Callable[[], bool]) -> None:
    """Lets the server work until it is so."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for does not know of us
            await asyncio.sleep(0.001)


class KafkaNode:
    """A listener on a free port, over fake partitions and metadata that are not logged."""

    def __init__(
        self,
        groups: GroupsSection | None = None,
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
            log=LogSection(segment_bytes=8 * MIB),
            sasl=sasl or SaslSection(),
            security=SecuritySection(permissive=optional),
            tls=TlsSection.model_construct(client_auth=client_auth),
        )
        self.metadata = FakeMetadata(self.local, self.directory)
        self.offsets = OffsetsPartitions()
        self.groups = GroupService(
            node_id=NODE,
            settings=groups or GroupsSection(),
            metadata=self.metadata,
            partitions=self.offsets,
        )
        self.authenticator = (
            None
            if sasl is None
            else Authenticator.load(sasl, lambda: self.metadata.image, is_demanded=not optional)
        )
        self.context = Context(
            node_id=NODE,
            address=lambda: self.listener.address,
            settings=self.settings,
            partitions=self,
            metadata=self.metadata,
            metrics=self.metrics,
            groups=self.groups,
            node_settings=self.node_settings,
            authenticator=self.authenticator,
            tls=tls,
        )
        self.listener = Listener(self.context)

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
