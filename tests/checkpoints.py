"""What the checkpoints of a data folder say, by the names of partitions."""

from pathlib import Path

from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.storage.disk import OsDisk


def offsets_in(file: Path) -> dict[tuple[str, int], int]:
    """Of the newest log of each partition; empty without the file."""
    offsets = OffsetCheckpoint(file, OsDisk()).read()
    return {it.tp: offsets[it] for it in sorted(offsets, key=lambda it: it.incarnation)}
