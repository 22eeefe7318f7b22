"""The image as the controller knows it, for requests that are decided, or described, upon it."""

from streamlog.kafka.context import Context
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.read_barrier import catch_up


async def newest_image(context: Context) -> MetadataImage:
    """All that was decided before this was called; what another node was told is found here."""
    await catch_up(context.metadata)
    return context.metadata.image
