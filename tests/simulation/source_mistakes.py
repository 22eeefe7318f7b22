"""Known mistakes of mirrors and sources, each planted into streamlog's own code, one at a time."""

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from streamlog.control.messages import purge
from streamlog.jetstream.consumers.stream_source import StreamSource
from streamlog.jetstream.mirroring import origin_batches
from streamlog.jetstream.mirroring.fed_partition import FedPartition
from streamlog.jetstream.mirroring.origin_batches import SourcePlace, identity_of
from streamlog.jetstream.mirroring.origin_feeds import ClusterFeed
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition
from streamlog.record.erasure import erasure_batches
from streamlog.record.offset_set import OffsetSet


def forget_the_places_of_sources(patch: pytest.MonkeyPatch) -> None:
    """A new leader begins with the first messages."""

    async def positions(*_: object) -> dict[str, int]:
        return {}

    patch.setattr(FedPartition, "source_positions", positions)


def find_places_by_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    """A new leader takes again what the one before it has appended, and commits both."""

    async def found(self: FedPartition, start: int, end: int) -> dict[str, SourcePlace]:
        return await inner(self, start, min(end, self._partition.high_watermark))

    inner = FedPartition._positions_in
    patch.setattr(FedPartition, "_positions_in", found)


def remember_places_of_earlier_leaderships(patch: pytest.MonkeyPatch) -> None:
    """A node goes by what it has appended before, whoever has led since."""

    async def positions(self: FedPartition, index_names: Collection[str]) -> dict[str, int]:
        await inner(self, index_names)
        before = known.get(self._partition, {})
        self._places |= before
        known[self._partition] = self._places
        return {it: place.sequence for it, place in self._places.items() if it in index_names}

    inner = FedPartition.source_positions
    known = dict[Partition, dict[str, SourcePlace]]()
    patch.setattr(FedPartition, "source_positions", positions)


def let_retention_take_the_only_places(patch: pytest.MonkeyPatch) -> None:
    """What says how far a source has come goes with the messages."""
    patch.setattr(Partition, "latest_start", property(lambda self: self.high_watermark))
    patch.setattr(FedPartition, "start_for", lambda _, start: start)
    patch.setattr(FedPartition, "_append_places", lambda _: None)


def hold_up_retention(patch: pytest.MonkeyPatch) -> None:
    """The places are not appended again where messages behind them are to go."""

    def keep_places(self: FedPartition) -> None:
        self._wanted_start = 0
        inner(self)

    inner = FedPartition.keep_places
    patch.setattr(FedPartition, "keep_places", keep_places)


def name_no_gaps(patch: pytest.MonkeyPatch) -> None:
    """What a mirror leaves out does not count as deleted."""

    def unnamed(_: OffsetSet, **more: Any) -> Iterator[bytes]:
        return erasure_batches(OffsetSet(), **more)

    patch.setattr(origin_batches, "erasure_batches", unnamed)


def leave_the_gaps_of_former_leaders(patch: pytest.MonkeyPatch) -> None:
    """A leader names what it leaves out itself, and not the gap that its log ends with."""

    async def find(_: FedPartition) -> None: ...

    patch.setattr(FedPartition, "find_unnamed", find)


def acknowledge_purges_that_do_nothing(patch: pytest.MonkeyPatch) -> None:
    """The feed has ended since its places were said again, and the next one looks for them yet."""

    async def cut(partition: Partition, upper: int) -> None:
        if partition.places is not None:
            await partition.places.renew()
        await partition.purge(upper)

    patch.setattr(purge, "cut", cut)


def take_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """Of an origin, all that its leader has."""

    class Appended:
        def __init__(self, partition: Partition) -> None:
            self._partition = partition

        def __getattr__(self, name: str) -> Any:
            return getattr(self._partition, {"read": "read_appended"}.get(name, name))

        @property
        def high_watermark(self) -> int:
            return self._partition.log_end_offset

        @property
        def stable_offset(self) -> int:
            return self._partition.log_end_offset

    def led(self: StreamSource, tp: TopicPartition, stream_id: Any) -> Any:
        return Appended(inner(self, tp, stream_id))

    inner = StreamSource._led
    patch.setattr(StreamSource, "_led", led)


def take_another_stream_for_its_namesake(patch: pytest.MonkeyPatch) -> None:
    """A source goes on at its place where its origin was made again."""

    async def compare(self: ClusterFeed, _: TopicPartition, stream: StreamImage) -> None:
        self._identity = identity_of(stream.stream_id)

    patch.setattr(ClusterFeed, "_compare", compare)


def purge_without_the_places(patch: pytest.MonkeyPatch) -> None:
    """They are not said again before a purge, which so leaves what is behind them."""

    async def cut(partition: Partition, upper: int) -> None:
        await partition.purge(upper)

    patch.setattr(purge, "cut", cut)
