"""Requests to one object store, by obstore: S3, GCS, Azure, a local folder.

All requests of tiered storage go through here, so that one place bounds and counts them:

- *Time.* An answer must begin within ``request_timeout_ms``, and bytes must come or go at
  ``bytes_per_s_min`` or faster. What takes longer is cancelled and counts as failed.
- *Retries.* A failure that may pass (no answer, a broken connection, 429, 5xx) is tried again after
  a pause that doubles, up to ``attempts_max`` attempts. Other failures are raised at once.
- *Concurrency.* At most ``uploads_max`` uploads and ``reads_max`` other requests run at once; more
  wait. Uploads never delay reads.
- *Bandwidth.* Each direction has its own limit.
- *Memory.* An upload holds at most ``parts_max + 1`` chunks at a time.

A ``create`` is a conditional put (``If-None-Match: *``): of two that write the same name, one
succeeds and the other gets ObjectExists. An attempt without an answer may have succeeded, so that a
second attempt finds the object of the first one. Therefore the content is compared before
ObjectExists is raised.

An ``upload`` in parts has no condition, and needs none. What two leaders must not both own is a manifest, and
manifests are always created. A segment is put under a name that no other upload has: leader epoch, and a UUID made for
this upload. The attempts of one upload write the same bytes, so an attempt that ends after a later one changes nothing;
one that ends after the object was removed leaves an orphan. A condition could not be had for all stores: S3 and Azure
know one for the end of an upload in parts, Google's store does not. Nor does obstore pass one on: with
``mode="create"`` it sends one request, with the whole object in memory.

obstore works in threads of its own, without Python's lock. What this package does with bytes
(reading files, checksums, writing files) runs in ``WORKERS`` threads through ``run``. In a node all of
these give way to the event loop (``give_way``): what is copied can wait, publishers cannot.
"""

import asyncio
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from streamlog.errors import (
    BrokenInvariant,
    ConfigError,
    CorruptObject,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreDenied,
    ObjectStoreUnavailable,
    StreamlogError,
)
from streamlog.rate_limit import TokenBucket

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ObjectStore as Backend

T = TypeVar("T")

MIB: Final = 1024 * 1024
CHUNK_BYTES: Final = 8 * MIB
"""Of what is read, sent and checked at once. S3 wants parts of at least 5 MiB."""
WORKERS: Final = 2
"""Threads for files and checksums. They are faster than any store."""
NICENESS: Final = 10
"""Of threads that give way, above the process's own. Where there is too little processor time for all, they get a tenth
of what others get.
"""
NICENESS_MAX: Final = 19
DELETED_MAX: Final = 1000
"""Objects that one request deletes."""
PART_TRIES: Final = 4
"""Of each part of an upload."""
EXTRA_MISSING: Final = "pip install 'streamlog[tier]'"

SCHEMES: Final = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "file", "memory")

_ANSWER: Final = re.compile(r"status(?: code)?:? (\d{3}[A-Za-z ]*)")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
_PASSING: Final = frozenset({408, 409, 425, 429})
"""Statuses below 500 that may pass."""

Chunks = Callable[[], AsyncIterator[bytes | memoryview]]
"""Each call gives all chunks of an object again."""


@dataclass(frozen=True, kw_only=True)
class StoreLimits:
    """See the module."""

    uploads_max: int = 2
    reads_max: int = 8
    parts_max: int = 2
    """Parts of one upload that are on their way at once."""
    upload_bytes_per_s: int | None = None
    """At least MIB: of a chunk that takes longer than DEBT_S_MAX the rest would be forgiven."""
    download_bytes_per_s: int | None = None
    """At least MIB, too."""
    request_timeout_ms: int = 10_000
    bytes_per_s_min: int = MIB
    attempts_max: int = 6
    backoff_ms: int = 100
    backoff_ms_max: int = 10_000

    def timeout_s(self, size_bytes: int) -> float:
        return self.request_timeout_ms / 1000 + size_bytes / self.bytes_per_s_min


@dataclass
class StoreStatistics:
    """Counted since the start."""

    requests: Counter[str] = field(default_factory=Counter)
    """Attempts, by operation."""
    failures: Counter[str] = field(default_factory=Counter)
    """Attempts that failed, by the name of the error."""
    retries: int = 0
    uploaded_bytes: int = 0
    downloaded_bytes: int = 0


class StoredObject(NamedTuple):
    """As a list shows it."""

    path: str
    size_bytes: int
    modified_ms: int
    """By the store's clock."""


class Throttle:
    """Keeps one direction below a bandwidth."""

    def __init__(self, bytes_per_s: int | None) -> None:
        """None: no limit."""
        now_s = time.monotonic()
        self._bucket = TokenBucket(bytes_per_s, 1.0, now_s) if bytes_per_s else None

    async def take(self, size_bytes: int) -> None:
        """Wait until so many bytes may pass."""
        if self._bucket is not None:
            wait_s = self._bucket.take(size_bytes, time.monotonic())
            if wait_s:
                await asyncio.sleep(wait_s)


class ObjectStore:
    """One store below a URL. Of one event loop; the constructor sends nothing."""

    def __init__(
        self,
        url: str,
        *,
        endpoint: str | None = None,
        limits: StoreLimits | None = None,
        workers: Executor | None = None,
    ) -> None:
        """``endpoint``: another address than the provider's own, as of a store that is compatible with S3.
        ``workers``: None: WORKERS new threads.

        Raises ConfigError.
        """
        self.url = url
        self.limits = limits or StoreLimits()
        self.statistics = StoreStatistics()
        self._folder = _local_folder(url)
        self._backend = _backend(url, endpoint, self.limits, tries=1)
        self._parts_backend = self._backend
        """Of uploads in parts: a part that failed is sent again, and not the whole object."""
        if self._folder is None and urlsplit(url).scheme != "memory":
            self._parts_backend = _backend(url, endpoint, self.limits, tries=PART_TRIES)
        self._workers = workers or ThreadPoolExecutor(WORKERS, thread_name_prefix="tier")
        self._uploads = asyncio.Semaphore(self.limits.uploads_max)
        self._reads = asyncio.Semaphore(self.limits.reads_max)
        self._up = Throttle(self.limits.upload_bytes_per_s)
        self._down = Throttle(self.limits.download_bytes_per_s)

    async def give_way(self) -> None:
        """The threads that move bytes have a lower priority than the event loop from now on. obstore's threads, which
        all stores of a process share, take theirs from the first one that asks for something: nothing must have been
        asked before. Nothing after ``close``: a node may stop while it starts.
        """
        both_began = threading.Barrier(WORKERS)
        with suppress(ObjectStoreUnavailable):
            await asyncio.gather(*(self.run(_give_way, both_began) for _ in range(WORKERS)))

    def close(self) -> None:
        """Let the threads end. Requests that are under way are the callers' to cancel."""
        self._workers.shutdown(wait=False)

    async def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """``call`` in a thread of tiered storage. A cancellation waits until it has ended: it may be
        writing a file that is to be removed. Raises ObjectStoreUnavailable after ``close``.
        """
        return await self.run_in(self._workers, call, *arguments)

    async def run_in(self, workers: Executor, call: Callable[..., T], *arguments: Any) -> T:
        """The same in other threads, for what takes long: reads of the store must not wait for it."""
        loop = asyncio.get_running_loop()
        try:
            future = loop.run_in_executor(workers, call, *arguments)
        except RuntimeError:  # the node stops
            raise ObjectStoreUnavailable(f"{self.url}: closed") from None
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    async def create(self, path: str, *parts: bytes | memoryview) -> None:
        """Put a new object of one request, made of ``parts``, durably.

        Raises ObjectExists where there is one with another content, ObjectStoreUnavailable.
        """
        import obstore

        size_bytes = sum(map(len, parts))
        await self._up.take(size_bytes)

        async def put() -> None:
            try:
                await obstore.put_async(
                    self._backend, path, list(parts), mode="create", use_multipart=False
                )
            except _already_there():
                await self._compare(path, parts)
            await self._make_durable(path)

        await self._request("create", path, put, size_bytes=size_bytes, gate=self._uploads)
        self.statistics.uploaded_bytes += size_bytes

    async def replace(self, path: str, data: bytes) -> None:
        """Put an object of one request, whether there is one or not. Raises as ``create``."""
        import obstore

        await self._up.take(len(data))

        async def put() -> None:
            await obstore.put_async(self._backend, path, data, use_multipart=False)
            await self._make_durable(path)

        await self._request("replace", path, put, size_bytes=len(data), gate=self._uploads)
        self.statistics.uploaded_bytes += len(data)

    async def upload(self, path: str, size_bytes: int, chunks: Chunks) -> None:
        """Put a large object in several parts, durably; it is found when all of it is there.

        ``path`` must be a name that was never used: there is no condition on an upload in parts (see the module).
        ``chunks`` raises what it likes, and the upload is given up. Raises ObjectStoreUnavailable.
        """
        import obstore

        async def throttled() -> AsyncIterator[bytes | memoryview]:
            async for chunk in chunks():
                await self._up.take(len(chunk))
                yield chunk

        async def put() -> None:
            await obstore.put_async(
                self._parts_backend,
                path,
                throttled(),
                use_multipart=True,
                chunk_size=CHUNK_BYTES,
                max_concurrency=self.limits.parts_max,
            )
            meta = await obstore.head_async(self._backend, path)
            if meta["size"] != size_bytes:
                raise CorruptObject(
                    f"{self._name(path)}: {meta['size']} bytes arrived of {size_bytes}"
                )
            await self._make_durable(path)

        paced = self.limits.upload_bytes_per_s or self.limits.bytes_per_s_min
        slowest = min(paced, self.limits.bytes_per_s_min)
        await self._request(
            "upload",
            path,
            put,
            timeout_s=self.limits.request_timeout_ms / 1000 + 2 * size_bytes / slowest,
            gate=self._uploads,
        )
        self.statistics.uploaded_bytes += size_bytes

    async def read(self, path: str) -> bytes:
        """A whole small object. Raises ObjectNotFound, ObjectStoreUnavailable."""
        import obstore

        async def get() -> bytes:
            async with asyncio.timeout(self.limits.timeout_s(0)):
                found = await obstore.get_async(self._backend, path)
            async with asyncio.timeout(self.limits.timeout_s(found.meta["size"])):
                return bytes(await found.bytes_async())

        data = await self._request("read", path, get, timeout_s=None, gate=self._reads)
        self.statistics.downloaded_bytes += len(data)
        await self._down.take(len(data))
        return data

    async def read_range(self, path: str, position: int, size_bytes: int) -> memoryview:
        """Those bytes. Raises ObjectNotFound, CorruptObject where the object ends before,
        ObjectStoreUnavailable.
        """
        import obstore

        async def get() -> memoryview:
            options: GetOptions = {"range": (position, position + size_bytes)}
            async with asyncio.timeout(self.limits.timeout_s(0)):
                found = await obstore.get_async(self._backend, path, options=options)
            async with asyncio.timeout(self.limits.timeout_s(size_bytes)):
                return memoryview(await found.bytes_async())

        await self._down.take(size_bytes)
        data = await self._request("read", path, get, timeout_s=None, gate=self._reads)
        self.statistics.downloaded_bytes += len(data)
        if len(data) != size_bytes:
            raise CorruptObject(
                f"{self._name(path)}: it ends at {position + len(data)},"
                f" before {position + size_bytes}"
            )
        return data

    async def size_bytes(self, path: str) -> int | None:
        """Of an object; None: there is none. Raises ObjectStoreUnavailable."""
        import obstore

        async def head() -> int | None:
            try:
                return (await obstore.head_async(self._backend, path))["size"]
            except FileNotFoundError:
                return None

        return await self._request("head", path, head, gate=self._reads)

    async def list(self, prefix: str) -> list[StoredObject]:
        """All objects in the folder ``prefix`` and the folders within, in the order of their names.

        A store may be behind with what it lists. Raises ObjectStoreUnavailable.
        """
        import obstore

        found: dict[str, StoredObject] = {}

        async def pages() -> None:
            found.clear()
            stream = obstore.list(self._backend, prefix, chunk_size=DELETED_MAX)
            while True:
                async with asyncio.timeout(self.limits.request_timeout_ms / 1000):
                    try:
                        page = await anext(aiter(stream))
                    except StopAsyncIteration:
                        return
                for it in page:
                    modified_ms = int(it["last_modified"].timestamp() * 1000)
                    found[it["path"]] = StoredObject(it["path"], it["size"], modified_ms)

        await self._request("list", prefix, pages, timeout_s=None, gate=self._reads)
        return sorted(found.values())

    async def delete(self, paths: Sequence[str]) -> None:
        """Those objects; one that is not there is no error. Raises ObjectStoreUnavailable."""
        import obstore

        for start in range(0, len(paths), DELETED_MAX):
            some = list(paths[start : start + DELETED_MAX])

            async def remove(some: Sequence[str] = some) -> None:
                try:
                    await obstore.delete_async(self._backend, some)
                except FileNotFoundError as error:
                    if _lacks_bucket(error):
                        raise
                    await self._delete_each(some)

            await self._request("delete", some[0], remove, size_bytes=0, gate=self._reads)

    async def check(self, prefix: str) -> None:
        """See whether the store does what tiered storage needs, with an object below ``prefix``.

        Raises ConfigError where the store ignores the condition of a put, which would let two
        leaders write the same manifest; ObjectStoreUnavailable.
        """
        path = f"{prefix}/check/{uuid4().hex}"
        await self.create(path, b"first")
        try:
            with _expected(ObjectExists) as refused:
                await self.create(path, b"second")
            if not refused:
                raise ConfigError(
                    "tier.url",
                    f"{self.url} ignores the condition of a put (If-None-Match)",
                    "use a store with conditional writes, or update it; docs/tiered-storage.md",
                )
            if await self.read(path) != b"first":
                raise CorruptObject(f"{self._name(path)}: it is not what was put there")
        finally:
            await self.delete([path])

    async def _delete_each(self, paths: Sequence[str]) -> None:
        import obstore

        for path in paths:
            with _expected(FileNotFoundError):
                await obstore.delete_async(self._backend, path)

    async def _compare(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        """Raises ObjectExists, unless the object consists of ``parts``."""
        import obstore

        try:
            found = await obstore.get_async(self._backend, path)
        except FileNotFoundError:  # another put is not finished, or it was deleted meanwhile
            raise OSError("another request writes the object") from None
        size_bytes = sum(map(len, parts))
        same = found.meta["size"] == size_bytes
        if not same or bytes(await found.bytes_async()) != b"".join(parts):
            raise ObjectExists(f"{self._name(path)}: there is another object of that name")

    async def _make_durable(self, path: str) -> None:
        """A local folder loses in a power cut what was not synced."""
        if self._folder is not None:
            await self.run(_sync, self._folder, path)

    async def _request(
        self,
        operation: str,
        path: str,
        attempt: Callable[[], Awaitable[T]],
        *,
        gate: asyncio.Semaphore,
        size_bytes: int = 0,
        timeout_s: float | None = -1.0,
    ) -> T:
        """``timeout_s``: by default by ``size_bytes``; None: ``attempt`` sees to it."""
        if timeout_s == -1.0:
            timeout_s = self.limits.timeout_s(size_bytes)
        pause_ms = self.limits.backoff_ms
        for number in range(1, self.limits.attempts_max + 1):
            self.statistics.requests[operation] += 1
            try:
                async with gate, asyncio.timeout(timeout_s):
                    return await attempt()
            except StreamlogError:
                raise
            except Exception as error:
                failure = self._failure(operation, path, error)
                self.statistics.failures[type(failure).__name__] += 1
                if number == self.limits.attempts_max or not _may_pass(failure, error):
                    raise failure from error
            self.statistics.retries += 1
            await asyncio.sleep(pause_ms * random.uniform(0.5, 1.0) / 1000)
            pause_ms = min(2 * pause_ms, self.limits.backoff_ms_max)
        raise BrokenInvariant("attempts_max is above 0")

    def _failure(self, operation: str, path: str, error: Exception) -> StreamlogError:
        """What to raise in place of ``error``."""
        where = f"{operation} {self._name(path)}"
        if isinstance(error, TimeoutError):
            return ObjectStoreUnavailable(
                f"{where}: no answer in time; {ObjectStoreUnavailable.remedy}"
            )
        text, status = _told(error), _status(error)
        if _is_denied(error) or status in (401, 403) or _lacks_bucket(error):
            return ObjectStoreDenied(f"{where}: {text}; {ObjectStoreDenied.remedy}")
        if isinstance(error, FileNotFoundError):
            return ObjectNotFound(f"{where}: there is no such object; {CorruptObject.remedy}")
        return ObjectStoreUnavailable(f"{where}: {text}; {ObjectStoreUnavailable.remedy}")

    def _name(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/{path}"


class _expected:  # noqa: N801
    """Whether one of those errors was raised in there."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds
        self._raised = False

    def __enter__(self) -> "_expected":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._raised = kind is not None and issubclass(kind, self._kinds)
        return self._raised

    def __bool__(self) -> bool:
        return self._raised


def _already_there() -> tuple[type[Exception], ...]:
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    return AlreadyExistsError, PreconditionError


def _is_denied(error: Exception) -> bool:
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    return isinstance(error, PermissionDeniedError | UnauthenticatedError)


def _lacks_bucket(error: Exception) -> bool:
    return any(it in str(error) for it in _NO_BUCKET)


def _told(error: Exception) -> str:
    """What the store answered; else the error without what obstore adds for its own debugging, and
    without the parameters of a URL, which may be secret.
    """
    text = str(error)
    answer = _ANSWER.search(text)
    if answer is not None:
        code = _CODE.search(text)
        return f"the store answered {answer[1].strip()}" + (f" ({code[1]})" if code else "")
    text = re.sub(r"\?\S*", "", text.partition("\n\nDebug source:")[0])
    return " ".join(text.split())[:300] or type(error).__name__


def _status(error: Exception) -> int | None:
    """Of the store's answer; None: there was none."""
    found = _ANSWER.search(str(error))
    return int(found[1][:3]) if found else None


def _may_pass(failure: StreamlogError, error: Exception) -> bool:
    if not isinstance(failure, ObjectStoreUnavailable) or isinstance(failure, ObjectStoreDenied):
        return False
    from obstore.exceptions import BaseError, InvalidPathError, NotSupportedError

    if isinstance(error, InvalidPathError | NotSupportedError):
        return False
    if not isinstance(error, BaseError):
        return isinstance(error, OSError)
    status = _status(error)
    return status is None or status >= 500 or status in _PASSING


def _local_folder(url: str) -> str | None:
    parts = urlsplit(url)
    return unquote(parts.path).rstrip("/") if parts.scheme == "file" else None


def _sync(folder: str, path: str) -> None:
    """A file and the folders on the way to it."""
    _fsync(f"{folder}/{path}")
    parent = Path(folder, path).parent
    while len(str(parent)) >= len(folder):
        _fsync(str(parent))
        parent = parent.parent


def _fsync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_url(url: str) -> None:
    """Whether tiered storage knows such stores. Raises ConfigError."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ConfigError(
            "tier.url",
            f"{url!r} is not of a known kind",
            "name s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder",
        )
    if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        raise ConfigError("tier.url", f"{url!r} is not an absolute path", "name file:///folder")
    if parts.scheme not in ("file", "memory") and not parts.netloc:
        raise ConfigError("tier.url", f"{url!r} names no bucket", f"name {parts.scheme}://bucket")


def lower_priority() -> None:
    """Of this thread, by NICENESS."""
    thread = threading.get_native_id()
    niceness = os.getpriority(os.PRIO_PROCESS, thread) + NICENESS
    os.setpriority(os.PRIO_PROCESS, thread, min(niceness, NICENESS_MAX))


def _give_way(both_began: threading.Barrier) -> None:
    """Each thread has its own priority on Linux, and those that it starts inherit it."""
    import obstore
    from obstore.store import MemoryStore

    lower_priority()
    obstore.list(MemoryStore()).collect()  # its threads begin
    both_began.wait()


def _backend(url: str, endpoint: str | None, limits: StoreLimits, *, tries: int) -> "Backend":
    """``tries``: attempts of obstore itself."""
    check_url(url)
    try:
        from obstore.exceptions import BaseError
        from obstore.store import LocalStore, MemoryStore, from_url
    except ImportError:
        raise ConfigError(
            "tier.url", "tiered storage needs the package obstore", EXTRA_MISSING
        ) from None
    scheme = urlsplit(url).scheme
    try:
        if scheme == "memory":
            return MemoryStore()
        if scheme == "file":
            return LocalStore(_local_folder(url), mkdir=True)
        address = "base_url" if scheme == "gs" else "endpoint"
        options: dict[str, Any] = {address: endpoint} if endpoint else {}
        part_timeout = timedelta(seconds=limits.timeout_s(CHUNK_BYTES))
        is_plain = endpoint is not None and endpoint.startswith("http://")
        return from_url(
            url,
            client_options={
                "allow_http": is_plain,
                # A request of any size has its time-out from ``_request``, a part has this one.
                "timeout": timedelta(hours=1) if tries == 1 else part_timeout,
                "connect_timeout": f"{limits.request_timeout_ms}ms",
            },
            retry_config={"max_retries": tries - 1, "retry_timeout": 2 * part_timeout},
            **options,
        )
    except (BaseError, ValueError, OSError) as error:
        raise ConfigError("tier.url", f"{url}: {_told(error)}", "correct it") from None
