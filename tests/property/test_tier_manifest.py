"""A manifest of tiered storage against a plain list of segments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import BrokenInvariant, CorruptFile, InvalidRequest
from streamlog.tier.manifest import TieredSegment, TierManifest
from streamlog.tier.object_layout import ManifestVersion, StreamPrefix, is_segment_name
from tests.tier_manifests import STREAM_ID, manifests, tiered_segment


@given(manifests())
def test_decoding_gives_what_was_encoded(manifest: TierManifest) -> None:
    assert TierManifest.decode(manifest.encode(), "here") == manifest


@given(manifests(), st.data())
def test_a_changed_byte_is_never_taken_for_a_manifest(
    manifest: TierManifest, data: st.DataObject
) -> None:
    encoded = bytearray(manifest.encode())
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptFile, match="here: "):
        TierManifest.decode(bytes(encoded), "here")


@given(manifests(), st.data())
def test_a_manifest_that_is_cut_is_corrupt(manifest: TierManifest, data: st.DataObject) -> None:
    encoded = manifest.encode()
    with pytest.raises(CorruptFile):
        TierManifest.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))], "here")


def test_a_later_format_is_refused_with_the_remedy() -> None:
    from crc32c import crc32c

    body = b'{"format":2}'
    with pytest.raises(InvalidRequest, match="use a later streamlog"):
        TierManifest.decode(b'{"crc32c":%d,"manifest":%b}\n' % (crc32c(body), body), "here")


@given(manifests(), st.integers(-5, 600))
def test_a_segment_is_found_by_each_of_its_offsets(manifest: TierManifest, ahead: int) -> None:
    offset = manifest.log_start_offset + ahead
    naive = [
        it
        for it in manifest.segments
        if it.base_offset <= offset < it.end_offset and offset >= manifest.log_start_offset
    ]
    assert manifest.segment_at(offset) == (naive[0] if naive else None)


@given(manifests(), st.integers(-1, 101))
def test_a_segment_is_found_by_a_timestamp(manifest: TierManifest, timestamp_ms: int) -> None:
    naive = [it for it in manifest.segments if it.max_timestamp_ms >= timestamp_ms]
    assert manifest.segment_since(timestamp_ms) == (naive[0] if naive else None)


@given(manifests(), st.integers(-100, 600))
def test_moving_the_log_start_drops_what_lies_wholly_below(
    manifest: TierManifest, ahead: int
) -> None:
    offset = manifest.log_start_offset + ahead
    after = manifest.without_below(offset)
    start = max(offset, manifest.log_start_offset)
    kept = tuple(it for it in manifest.segments if it.end_offset > start)
    assert (after.log_start_offset, after.segments) == (start, kept)
    assert after.removed_since(manifest) == manifest.segments[: len(manifest.segments) - len(kept)]


@given(manifests(), st.integers(-5, 600))
def test_bytes_are_counted_from_a_segment_on(manifest: TierManifest, ahead: int) -> None:
    offset = manifest.log_start_offset + ahead
    naive = sum(it.size_bytes for it in manifest.segments if it.base_offset >= offset)
    assert manifest.bytes_from(offset) == naive


@given(manifests(), st.integers(-3, 3))
def test_only_the_next_segment_may_follow(manifest: TierManifest, gap: int) -> None:
    base = manifest.end_offset + gap
    if base < 0:
        return
    new = tiered_segment(base, base + 10, epoch=manifest.leader_epoch)
    follows = gap == 0 if manifest.segments else gap <= 0 and base + 10 > manifest.end_offset
    if follows:
        assert manifest.with_segment(new).end_offset == base + 10
    else:
        with pytest.raises(BrokenInvariant):
            manifest.with_segment(new)


@given(manifests())
def test_the_epochs_are_those_of_all_segments(manifest: TierManifest) -> None:
    epochs = manifest.leader_epochs
    assert list(epochs) == sorted(set(epochs))
    for segment in manifest.segments:
        at = [it.epoch for it in epochs if it.start_offset <= segment.base_offset]
        assert at[-1] == segment.leader_epochs[0].epoch


@given(manifests())
def test_segments_grow_one_by_one_into_the_same_manifest(manifest: TierManifest) -> None:
    grown = TierManifest(
        stream_id=manifest.stream_id,
        partition=manifest.partition,
        log_start_offset=manifest.log_start_offset,
    )
    for segment in manifest.segments:
        grown = grown.with_segment(segment)
    assert grown.segments == manifest.segments


def test_the_next_version_needs_an_epoch_that_is_not_older() -> None:
    manifest = TierManifest(stream_id=STREAM_ID, partition=0, leader_epoch=5, version=8)
    assert manifest.next_version(6).manifest_version == ManifestVersion(6, 9)
    with pytest.raises(BrokenInvariant, match="epoch 4"):
        manifest.next_version(4)


@pytest.mark.parametrize(
    "segments",
    [
        (tiered_segment(0, 10), tiered_segment(11, 20)),
        (tiered_segment(0, 10), tiered_segment(9, 20)),
        (tiered_segment(5, 10),),
        (tiered_segment(0, 10, epoch=3), tiered_segment(10, 20, epoch=2)),
    ],
    ids=["a hole", "an overlap", "begins above the start", "an older epoch"],
)
def test_segments_that_do_not_fit_are_refused(segments: tuple[TieredSegment, ...]) -> None:
    with pytest.raises(BrokenInvariant):
        TierManifest(stream_id=STREAM_ID, partition=0, log_start_offset=4, segments=segments)


@given(st.integers(0, 2**31), st.integers(0, 2**63))
def test_names_of_manifests_are_in_the_order_of_versions(epoch: int, version: int) -> None:
    new = ManifestVersion(epoch, version)
    assert ManifestVersion.parse(new.name) == new
    assert new.name < ManifestVersion(epoch, version + 1).name
    assert ManifestVersion(epoch, version + 1).name < ManifestVersion(epoch + 1, 0).name


def test_a_foreign_name_is_neither_a_segment_nor_a_manifest_nor_a_stream() -> None:
    assert ManifestVersion.parse("1-2") is None
    assert not is_segment_name("readme.txt")
    assert StreamPrefix.parse("cluster/readme/stream.json") is None
    prefix = StreamPrefix("cluster", STREAM_ID)
    assert StreamPrefix.parse(prefix.description) == prefix
