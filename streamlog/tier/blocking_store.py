"""An object store for programs without an event loop: Spark's workers, and other readers of Arrow.

The requests are those of ``object_store``, with its time-outs, retries and limits. They run in a thread of their own,
so that a reader decodes what has come while the next bytes are on their way.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from threading import Thread
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from streamlog.tier.manifest import TieredSegment, TierManifest
from streamlog.tier.manifest_store import ManifestStore
from streamlog.tier.object_layout import ManifestVersion, PartitionPrefix
from streamlog.tier.object_store import ObjectStore, StoreLimits
from streamlog.tier.segment_object import Checksums, read_blocks, read_part, read_parts

T = TypeVar("T")

CLOSE_TIMEOUT_S: Final = 10.0
"""So long the thread may take to end what it does."""


class ManifestPlace(NamedTuple):
    """Which manifest of a partition."""

    prefix: PartitionPrefix
    version: ManifestVersion


class BlockingStore:
    """For one thread. The first request starts the thread of requests, ``close`` ends it."""

    def __init__(
        self, url: str, *, endpoint: str | None = None, limits: StoreLimits | None = None
    ) -> None:
        """``endpoint``: as of ``ObjectStore``. Raises ConfigError."""
        self.url = url.rstrip("/")
        self._store = ObjectStore(url, endpoint=endpoint, limits=limits)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Requests that are under way are cancelled."""
        loop, self._loop = self._loop, None
        thread, self._thread = self._thread, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(CLOSE_TIMEOUT_S)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_TIMEOUT_S)
        self._store.close()

    @property
    def request_counts(self) -> dict[str, int]:
        """Attempts so far, by operation."""
        return dict(self._store.statistics.requests)

    def manifests(self, places: Iterable[ManifestPlace]) -> list[TierManifest]:
        """Several at once, in the same order. Raises as ``ManifestStore.get``."""

        async def read() -> list[TierManifest]:
            return await asyncio.gather(
                *(ManifestStore(self._store, it.prefix.stream.cluster_id).get(*it) for it in places)
            )

        return self._ask(read()).result()

    def parts(self, prefix: PartitionPrefix, segment: TieredSegment) -> dict[str, bytes]:
        """See ``segment_object.read_parts``."""
        return self._ask(read_parts(self._store, prefix, segment)).result()

    def named_parts(
        self, name: str, segments: Iterable[tuple[PartitionPrefix, TieredSegment]]
    ) -> list[bytes]:
        """The part of that name of each, several at once; see ``segment_object.read_part``."""

        async def read() -> list[bytes]:
            return await asyncio.gather(
                *(read_part(self._store, prefix, it, name) for prefix, it in segments)
            )

        return self._ask(read()).result()

    def ask_blocks(
        self, prefix: PartitionPrefix, segment: TieredSegment, checksums: Checksums, blocks: range
    ) -> "Future[memoryview]":
        """They are on their way from now on; see ``segment_object.read_blocks``."""
        return self._ask(read_blocks(self._store, prefix, segment, checksums, blocks))

    def _ask(self, request: Coroutine[Any, Any, T]) -> "Future[T]":
        if self._loop is None:
            self._loop = loop = asyncio.new_event_loop()
            self._thread = Thread(target=_run, args=(loop,), name="object-store", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(request, self._loop)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for it in others:
        it.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*others, return_exceptions=True)
