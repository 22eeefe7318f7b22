"""The one shell of the metadata. One request at a time: decide, log, apply, tell, answer."""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from streamlog.errors import Overloaded, StorageFailed, StreamlogError
from streamlog.metadata import controller
from streamlog.metadata.controller import Decision
from streamlog.metadata.image import Image, StreamImage
from streamlog.metadata.store import MetadataStore
from streamlog.metadata.stream import StreamConfig
from streamlog.model import NodeId

logger = logging.getLogger(__name__)

REQUESTS_MAX: Final = 1_000
"""Requests that wait; one more is refused as Overloaded."""

Listener = Callable[[Image, Image], Awaitable[None]]
"""Told of each change with the image before and after; awaited before the caller is answered."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Request:
    decide: Callable[[Image], Decision]
    answer: asyncio.Future[tuple[Image, bool]]


class MetadataService:
    """The cluster's metadata on this node, and the ways to change them.

    ``open``, then ``run`` as a task for as long as requests are to be answered, then ``close``.
    """

    def __init__(self, store: MetadataStore, cluster_id: str) -> None:
        self.image = Image(cluster_id)
        """Replaced as a whole; never changes under whoever holds it."""
        self.failure: StorageFailed | None = None
        """Set once, when the metadata log has failed: changes are refused until a restart."""
        self._store = store
        self._listeners: list[Listener] = []
        self._requests: asyncio.Queue[_Request | None] = asyncio.Queue()
        self._closing = False
        self._stopped = asyncio.Event()
        self._stopped.set()
        # One thread: what the store does is done in order, also after a cancelled wait.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")

    @property
    def recently_deleted(self) -> frozenset[UUID]:
        """Ids of streams whose folders may still lie around from before this start."""
        return self._store.deleted

    def add_listener(self, listener: Listener) -> None:
        """``listener`` is awaited at each change, in the order in which listeners were added."""
        self._listeners.append(listener)

    async def open(self) -> None:
        """Replay the log. Raises CorruptData or StorageFailed. Listeners hear nothing yet."""
        self.image = await self._in_worker(self._store.open)
        logger.info(
            "metadata replayed",
            extra={
                "offset": self.image.offset,
                "epoch": self._store.epoch,
                "streams": len(self.image.streams),
            },
        )

    async def register(
        self, node_id: NodeId, *, host: str, port: int, rack: str | None = None
    ) -> None:
        """Note where this node is, and lead its partitions in new epochs. Before ``run``."""
        decision = controller.register_node(
            self.image, node_id=node_id, incarnation=uuid.uuid4(), host=host, port=port, rack=rack
        )
        await self._put_in_force(await self._log(decision))

    async def create_stream(self, config: StreamConfig) -> tuple[StreamImage, bool]:
        """The stream, and whether it is new. Raises InvalidRequest, StorageFull, StorageFailed."""
        image, changed = await self._request(
            lambda image: controller.create_stream(
                image, config, new_id=uuid.uuid4(), now_ms=time.time_ns() // 1_000_000
            )
        )
        return image.stream(config.name), changed

    async def update_stream(self, config: StreamConfig) -> StreamImage:
        """The stream as it is now."""
        image, _ = await self._request(lambda image: controller.update_stream(image, config))
        return image.stream(config.name)

    async def delete_stream(self, name: str) -> None:
        """The stream is gone, and nobody finds it after this; its files go in the background."""
        await self._request(lambda image: controller.delete_stream(image, name))

    async def run(self) -> None:
        """Answer requests, one at a time, until ``close``."""
        self._stopped.clear()
        try:
            while (request := await self._requests.get()) is not None:
                await self._serve(request)
        finally:
            self._stopped.set()

    async def close(self) -> None:
        """Refuse what waits, finish what has begun, close the log. May be called again."""
        if self._closing:
            return
        self._closing = True
        while not self._requests.empty():
            request = self._requests.get_nowait()
            if request is not None and not request.answer.done():
                request.answer.set_exception(_closed())
        self._requests.put_nowait(None)
        await self._stopped.wait()
        await self._in_worker(self._store.close)
        self._worker.shutdown(wait=False)

    async def _request(self, decide: Callable[[Image], Decision]) -> tuple[Image, bool]:
        if self._closing:
            raise _closed()
        if self._requests.qsize() >= REQUESTS_MAX:
            raise Overloaded(f"{REQUESTS_MAX} metadata requests wait already")
        answer: asyncio.Future[tuple[Image, bool]] = asyncio.get_running_loop().create_future()
        self._requests.put_nowait(_Request(decide, answer))
        return await answer

    async def _serve(self, request: _Request) -> None:
        """A caller who no longer waits does not stop what has begun."""
        answer = request.answer
        if answer.done():
            return
        try:
            try:
                decision = request.decide(self.image)
                after = await self._log(decision)
            except StreamlogError as error:
                if not answer.done():
                    answer.set_exception(error)
                return
            await self._put_in_force(after)
            if not answer.done():
                answer.set_result((self.image, decision.changes))
        finally:
            if not answer.done():
                answer.set_exception(_closed())

    async def _log(self, decision: Decision) -> Image:
        """The image after the decision, which is on the disk then."""
        if not decision.changes:
            return self.image
        if self.failure is not None:
            raise self.failure
        records, now_ms = decision.records, time.time_ns() // 1_000_000
        try:
            offset = await self._in_worker(lambda: self._store.append(records, now_ms))
        except StorageFailed as error:
            self.failure = error
            logger.error("metadata log failed", extra={"error": str(error)})
            raise
        return self.image.apply_all(records, offset=offset, epoch=self._store.epoch)

    async def _put_in_force(self, image: Image) -> None:
        """Whatever a listener raises stops the node: it must handle what it can."""
        old, self.image = self.image, image
        if image is old:
            return
        for listener in self._listeners:
            await listener(old, image)
        if self._store.snapshot_due(self.image):
            await self._in_worker(lambda: self._store.snapshot(self.image))

    async def _in_worker(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)


def _closed() -> StreamlogError:
    return Overloaded("the node is stopping")
