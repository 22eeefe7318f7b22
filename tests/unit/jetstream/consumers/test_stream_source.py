"""What reads for consumers keep between them."""

import gc
import weakref
from typing import Any
from uuid import UUID

from streamlog.jetstream.consumers.stream_source import StreamSource
from tests.readable_partition import FakePartition


class Nodes:
    def register(self, *_: object) -> None:
        """No node asks."""


async def test_searches_of_partitions_that_are_closed_are_let_go_of() -> None:
    source = StreamSource(None, None, Nodes(), None)  # type: ignore[arg-type]
    gone: Any = FakePartition([["a", "b"]])
    other: Any = FakePartition([["a"]])
    gone.closed = other.closed = False
    seen = weakref.ref(gone.subjects)
    kept = source._matching(gone, UUID(int=1), ("a",), 0)
    assert source._matching(gone, UUID(int=1), ("a",), 1) is kept
    assert await kept.count(0) == 1
    gone.closed = True
    del gone, kept
    kept = source._matching(other, UUID(int=2), ("a",), 0)
    gc.collect()
    assert seen() is None
    assert source._matching(other, UUID(int=2), ("a",), 0) is kept
