"""Manifests of tiered storage as a strategy: any that a partition may have."""

from uuid import UUID

from hypothesis import strategies as st

from streamlog.log.leader_epochs import EpochStart
from streamlog.tier.manifest import SegmentPart, TieredSegment, TierManifest
from streamlog.tier.object_layout import segment_name

STREAM_ID = UUID(int=7)


def tiered_segment(
    base_offset: int,
    end_offset: int,
    *,
    epoch: int = 3,
    size_bytes: int = 100,
    max_timestamp_ms: int = 1,
    upload: int = 0,
) -> TieredSegment:
    return TieredSegment(
        base_offset=base_offset,
        end_offset=end_offset,
        max_timestamp_ms=max_timestamp_ms,
        size_bytes=size_bytes,
        crc32c=base_offset % 2**32,
        leader_epochs=(EpochStart(epoch, base_offset),),
        name=segment_name(base_offset, epoch, UUID(int=upload)),
        parts=(
            SegmentPart(".index", size_bytes, 8, 1),
            SegmentPart(".timeindex", size_bytes + 8, 12, 2),
        ),
    )


@st.composite
def manifests(draw: st.DrawFn) -> TierManifest:
    base = draw(st.integers(0, 2**40))
    epoch = draw(st.integers(0, 9))
    segments = []
    for _ in range(draw(st.integers(0, 8))):
        end = base + draw(st.integers(1, 50))
        segments.append(
            tiered_segment(
                base,
                end,
                epoch=epoch,
                size_bytes=draw(st.integers(1, 1000)),
                max_timestamp_ms=draw(st.integers(-1, 100)),
                upload=draw(st.integers(0, 2**128 - 1)),
            )
        )
        base, epoch = end, epoch + draw(st.integers(0, 2))
    start = base
    if segments:
        start = draw(st.integers(segments[0].base_offset, segments[0].end_offset - 1))
    return TierManifest(
        stream_id=draw(st.uuids()),
        partition=draw(st.integers(0, 2**31)),
        leader_epoch=epoch,
        version=draw(st.integers(0, 2**63)),
        log_start_offset=start,
        segments=tuple(segments),
    )
