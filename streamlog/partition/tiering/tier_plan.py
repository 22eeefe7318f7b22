"""What is to be done about a tiered partition. Pure: manifests and numbers in, decisions out."""

from collections.abc import Sequence

from streamlog.log.leader_epochs import EpochStart, LeaderEpochs
from streamlog.log.settings import UNLIMITED, LogSettings
from streamlog.tier.manifest import TierManifest


def expired_start(
    manifest: TierManifest,
    settings: LogSettings,
    *,
    start: int,
    local_bytes: int,
    now_ms: int,
) -> int:
    """Where the partition begins once the segments in the store are gone that the stream's limits no longer keep.

    ``start``: where it begins now; ``local_bytes``: of what follows behind the manifest's end. Whole segments go, so
    that what stays is at least what a limit says. One whose times are not known is not too old.
    """
    left_bytes = manifest.bytes_from(0) + local_bytes
    for segment in manifest.segments:
        if segment.end_offset > start:
            too_large = UNLIMITED < settings.retention_bytes <= left_bytes - segment.size_bytes
            age_ms = now_ms - segment.max_timestamp_ms
            too_old = (
                settings.retention_ms != UNLIMITED
                and segment.max_timestamp_ms >= 0
                and age_ms > settings.retention_ms
            )
            if not too_large and not too_old:
                break
            start = segment.end_offset
        left_bytes -= segment.size_bytes
    return start


def shared_end(
    manifest: TierManifest, local: Sequence[EpochStart], *, local_start: int, log_end: int
) -> int:
    """Up to where the store has the same records as the leader's log, of ``local`` leader epochs.

    They differ after an unclean election alone: the new leader lacks records that were committed, and has others in
    their place. Two logs that have records of one epoch are the same up to its end in the shorter one (KIP-320).
    """
    parted = parted_below(manifest, local, local_start=local_start, log_end=log_end)
    if parted is not None:
        return parted
    if manifest.end_offset <= local_start:
        return manifest.end_offset
    end = min(manifest.end_offset, log_end)
    tiered = LeaderEpochs(list(manifest.leader_epochs)).between(local_start, end)
    ours = LeaderEpochs(list(local)).between(local_start, end)
    for mine, theirs in zip(ours, tiered, strict=False):
        if mine != theirs:
            return min(mine.start_offset, theirs.start_offset)
    rest = ours[len(tiered) :] or tiered[len(ours) :]
    return rest[0].start_offset if rest else end


def parted_below(
    manifest: TierManifest, local: Sequence[EpochStart], *, local_start: int, log_end: int
) -> int | None:
    """Where the store has something below the log of this replica that was never before it: records of a later epoch
    than that log begins with. None: nowhere.

    Another leader has written them, after an unclean election, while this replica was away.
    """
    if not local or local_start >= log_end:
        return None
    first = local[0].epoch
    later = (it.start_offset for it in manifest.leader_epochs if it.epoch > first)
    return next((it for it in later if it < local_start), None)


def cut_at(manifest: TierManifest, end: int) -> TierManifest:
    """Without the segments that reach beyond ``end``."""
    kept = tuple(it for it in manifest.segments if it.end_offset <= end)
    return TierManifest(
        stream_id=manifest.stream_id,
        partition=manifest.partition,
        leader_epoch=manifest.leader_epoch,
        version=manifest.version,
        log_start_offset=manifest.log_start_offset,
        segments=kept,
    )
