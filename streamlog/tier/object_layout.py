"""Names of the objects of tiered storage, below the store's URL. Pure.

::

    <cluster id>/<stream id>/stream.json
    <cluster id>/<stream id>/<partition>/segments/<base offset>-<leader epoch>-<uuid>
    <cluster id>/<stream id>/<partition>/manifests/<leader epoch>-<version>

Numbers have leading zeros, so that a list in the order of names is one in the order of numbers. A
segment's name has a new UUID each time it is uploaded: two uploads never write the same object.
"""

import re
from typing import Final, NamedTuple
from uuid import UUID

STREAM_NAME: Final = "stream.json"

_SEGMENT: Final = re.compile(r"(\d{20})-(\d{10})-([0-9a-f]{32})")
_MANIFEST: Final = re.compile(r"(\d{10})-(\d{20})")
_CLUSTER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def segment_name(base_offset: int, leader_epoch: int, upload_id: UUID) -> str:
    """Of the object within the partition's ``segments``. ``upload_id``: a new one each time."""
    return f"{base_offset:020d}-{leader_epoch:010d}-{upload_id.hex}"


def is_segment_name(name: str) -> bool:
    return _SEGMENT.fullmatch(name) is not None


class ManifestVersion(NamedTuple):
    """Which of a partition's manifests; the greatest one is the newest."""

    leader_epoch: int
    version: int

    @property
    def name(self) -> str:
        return f"{self.leader_epoch:010d}-{self.version:020d}"

    @classmethod
    def parse(cls, name: str) -> "ManifestVersion | None":
        """None: it is no manifest's name."""
        found = _MANIFEST.fullmatch(name)
        return cls(int(found[1]), int(found[2])) if found else None


class StreamPrefix(NamedTuple):
    """Where the objects of a stream are."""

    cluster_id: str
    stream_id: UUID

    @property
    def path(self) -> str:
        return f"{self.cluster_id}/{self.stream_id.hex}"

    @property
    def description(self) -> str:
        return f"{self.path}/{STREAM_NAME}"

    def partition(self, number: int) -> "PartitionPrefix":
        return PartitionPrefix(self, number)

    @classmethod
    def parse(cls, path: str) -> "StreamPrefix | None":
        """Of the path of a stream's description; None: it is none."""
        parts = path.split("/")
        if len(parts) != 3 or parts[2] != STREAM_NAME or not _CLUSTER.fullmatch(parts[0]):
            return None
        try:
            stream_id = UUID(hex=parts[1])
        except ValueError:
            return None
        return cls(parts[0], stream_id) if stream_id.hex == parts[1] else None


class PartitionPrefix(NamedTuple):
    """Where the objects of a partition are."""

    stream: StreamPrefix
    number: int

    @property
    def path(self) -> str:
        return f"{self.stream.path}/{self.number}"

    @property
    def segments(self) -> str:
        return f"{self.path}/segments"

    @property
    def manifests(self) -> str:
        return f"{self.path}/manifests"

    def segment(self, name: str) -> str:
        return f"{self.segments}/{name}"

    def manifest(self, version: ManifestVersion) -> str:
        return f"{self.manifests}/{version.name}"
