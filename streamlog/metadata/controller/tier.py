"""Accepts or refuses what leaders have put into the object store (KIP-405). Pure.

The store itself decides nothing: it may show old lists, and two leaders may write to it at once. A manifest counts
once it is accepted here, by the leader of the current epoch that knows the manifest before it. So what a deposed
leader uploads is never named by a manifest that counts, and no two leaders own an object.

A partition begins with version 0: there is no manifest, nothing is in the store, and from then on it begins where this
says, and not where the logs of its replicas do.
"""

from streamlog.metadata.commands import AlterTier, TierChange, TierVerdict
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.controller.partition_changes import present_node
from streamlog.metadata.image.image_types import TierImage, tier_changed
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.metadata.image.records import MetadataRecord
from streamlog.model import NodeId


def alter_tier(image: MetadataImage, command: AlterTier) -> Decision:
    """A verdict for each change, in order; what is in force already is granted again. Raises StaleNode."""
    present_node(image, command.node_id, command.node_epoch)
    decided = set[tuple[str, int]]()
    verdicts: list[TierVerdict] = []
    records: list[MetadataRecord] = []
    for change in command.changes:
        key = (change.stream, change.partition)
        known = _known(image, change)
        if key in decided or known is None or not _leads(known, command.node_id, change):
            verdicts.append("stale")
            continue
        decided.add(key)
        wanted = _wanted(known.tier, change)
        if wanted == known.tier:
            verdicts.append("granted")
            continue
        verdict = _verdict(image, known.tier, wanted, change)
        verdicts.append(verdict)
        if verdict == "granted":
            records.append(tier_changed(change.stream, change.partition, wanted))
    return Decision(tuple(records), {"verdicts": verdicts})


def _known(image: MetadataImage, change: TierChange) -> PartitionImage | None:
    stream = image.streams.get(change.stream)
    if stream is None or stream.stream_id != change.stream_id:
        return None
    if not 0 <= change.partition < len(stream.partitions):
        return None
    return stream.partitions[change.partition]


def _leads(known: PartitionImage, node: NodeId, change: TierChange) -> bool:
    return (known.leader, known.leader_epoch) == (node, change.leader_epoch)


def _wanted(known: TierImage | None, change: TierChange) -> TierImage:
    """A later log start alone leaves the manifest what it is."""
    is_same = known is not None and change.expected == known[:2] and change.version == known.version
    epoch = known.leader_epoch if known is not None and is_same else change.leader_epoch
    return TierImage(epoch, change.version, change.log_start_offset, change.end_offset)


def _verdict(
    image: MetadataImage, known: TierImage | None, wanted: TierImage, change: TierChange
) -> TierVerdict:
    if change.expected != (None if known is None else known[:2]):
        return "stale"
    if not image.streams[change.stream].config.tiered:
        return "refused"
    if not 0 <= wanted.log_start_offset <= wanted.end_offset:
        return "refused"
    if known is None:
        is_empty = wanted.log_start_offset == wanted.end_offset
        return "granted" if wanted.version == 0 and is_empty else "refused"
    if wanted.log_start_offset < known.log_start_offset:
        return "refused"
    if wanted[:2] == known[:2]:
        end = max(known.end_offset, wanted.log_start_offset)
        return "granted" if wanted.end_offset == end else "refused"
    if wanted.version != known.version + 1:
        return "refused"
    # Less is in the store only where a new leader lacks what the one before it had: an unclean election.
    is_new_leader = wanted.leader_epoch > known.leader_epoch
    return "granted" if is_new_leader or wanted.end_offset >= known.end_offset else "refused"
