"""The schema that a stream's setting names, out of a node's data folder: its metadata, up to what was committed.

A running node may write there meanwhile. It notes each second what is committed; what came after that is not looked at.
"""

import posixpath
from errno import ENOENT
from typing import Final

from streamlog.arrow.files.file_system import Files, opened, read_small
from streamlog.arrow.files.stream_folder import HIGH_WATERMARKS, Roots
from streamlog.arrow.options.encryption_keys import Openers
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.errors import ConfigError
from streamlog.log.checkpoint import parse_offset_checkpoint
from streamlog.log.layout import LOG_SUFFIX, segment_base_offsets, segment_stem
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import decode_snapshot
from streamlog.metadata.quorum.store import METADATA_LOG_ID, decode_batches

SNAPSHOT_SUFFIX: Final = ".checkpoint"
TRIES_MAX: Final = 20
"""A node that runs removes files while they are looked for."""
REMEDY: Final = "write --schema FILE, or --schema none for bytes"


def folder_schema(read: ReadOptions, stream: str) -> str:
    """The setting ``table_schema``; empty: there is none. Raises ConfigError where the folder does not tell, and
    CorruptFile, CorruptData.
    """
    roots = Roots.of(str(read.path), Openers(read.keys))
    folder = posixpath.join(roots.data_dir, "metadata")
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            image = _image(roots.files, folder)
            break
        except FileNotFoundError as error:
            if not tries_left:
                problem = f"{folder} cannot be read ({error}): the stream's settings are unknown"
                raise ConfigError("--path", problem, REMEDY) from None
    found = image.streams.get(stream)
    if found is None:
        problem = f"the metadata in {folder} has no stream {stream}: its settings are unknown"
        raise ConfigError("--path", problem, REMEDY)
    return found.config.table_schema


def _image(files: Files, folder: str) -> MetadataImage:
    """Raises FileNotFoundError where there is none, or a file was removed meanwhile."""
    committed = _committed(files, folder)
    names, _ = files.children(folder)
    snapshots = sorted(
        name for name in names if name.endswith(SNAPSHOT_SUFFIX) and name[0].isdigit()
    )
    if snapshots:
        path = f"{folder}/{snapshots[-1]}"
        image = decode_snapshot(read_small(files, path), path)
    else:
        image = MetadataImage("")
    bases = segment_base_offsets(files.children(f"{folder}/log")[0])
    if image.offset < committed and (not bases or bases[0] > image.offset):
        raise FileNotFoundError(
            ENOENT, "it does not begin where the snapshot ends", f"{folder}/log"
        )
    for base, following in zip(bases, [*bases[1:], committed], strict=True):
        if following <= image.offset or base >= committed:
            continue
        path = f"{folder}/log/{segment_stem(base)}{LOG_SUFFIX}"
        with opened(files, path) as file:
            data = file.pread(file.size(), 0)
        for batch in decode_batches(data, base, path):
            if image.offset <= batch.base_offset < committed:
                image = image.apply_all(batch.records, offset=batch.base_offset, epoch=batch.epoch)
    return image


def _committed(files: Files, folder: str) -> int:
    path = f"{folder}/{HIGH_WATERMARKS}"
    return parse_offset_checkpoint(read_small(files, path), path).get(METADATA_LOG_ID, 0)
