"""``KafkaNode`` on an event loop of its own, for tests of clients that block."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from streamlog.model import TopicPartition
from tests.fake_partition import FakePartition
from tests.kafka_node import KafkaNode

CALL_TIMEOUT_S = 30.0

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
