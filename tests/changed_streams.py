"""Streams are replaced and deleted, as ``control`` asks for it."""

from streamlog.metadata.commands import DeleteStream, UpdateStream
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.service import MetadataService
from streamlog.metadata.stream.stream_config import StreamConfig


async def update_stream(metadata: MetadataService, config: StreamConfig) -> StreamImage:
    await metadata.change_stream(UpdateStream(config=config), config.name)
    return metadata.image.stream(config.name)


async def delete_stream(metadata: MetadataService, name: str) -> None:
    known = metadata.image.streams.get(name)
    await metadata.change_stream(DeleteStream(name=name), name, deleted=known)
