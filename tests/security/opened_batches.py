"""Batches of few bytes that decompress to many, and where that happens."""

import threading
from typing import Any

import pytest

from streamlog.record import compression
from streamlog.record.compression import Compression, compress
from tests.record_batches import HandRecord, hand_batch

MIB = 1024 * 1024


def swollen(
    codec: Compression,
    size: int,
    *,
    records: int = 1,
    base_offset: int = 0,
    subject: bytes | None = None,
) -> bytes:
    """A batch whose records come to ``size`` bytes, each as large as the others."""
    headers = [] if subject is None else [(b"subject", subject)]
    record = HandRecord(bytes(size // records), headers=headers)
    return hand_batch(
        [record] * records,
        base_offset,
        attributes=codec,
        max_timestamp_ms=1_000,
        compress=lambda body: bytes(compress(codec, body)),
    )


class Openings:
    """What is decompressed while it is in place: in which thread, and into how large a buffer."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, int]] = []
        for codec, module in compression._STREAMS.items():
            patch.setitem(compression._STREAMS, codec, _Spied(module, self.seen))

    def largest_here(self) -> int:
        """In this thread, which is the event loop's."""
        return max(
            (size for thread, size in self.seen if thread == threading.get_ident()), default=0
        )

    @property
    def elsewhere(self) -> int:
        return sum(thread != threading.get_ident() for thread, _ in self.seen)


class _Spied:
    def __init__(self, module: Any, seen: list[tuple[int, int]]) -> None:
        self._module = module
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def decompress_into(self, data: Any, output: Any) -> int:
        self._seen.append((threading.get_ident(), len(output)))
        return int(self._module.decompress_into(data, output))
