"""The metadata in a backup. Blocking."""

from streamlog.backup.batch_file import checked_content
from streamlog.backup.folder import BackupFolder
from streamlog.backup.manifest import Piece
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import decode_snapshot


def image_in(folder: BackupFolder) -> MetadataImage | None:
    """None where no run has come to its end. Raises CorruptFile, Unavailable."""
    metadata = folder.manifest.metadata
    if metadata is None:
        return None
    path = folder.metadata / metadata.name
    whole = Piece(**metadata.model_dump(exclude={"offset", "epoch"}), base_offset=0, next_offset=0)
    return decode_snapshot(b"".join(checked_content(path, whole)), str(path))
