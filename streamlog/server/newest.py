"""The image as the controller knows it, for requests that are decided, or described, upon it."""

import asyncio
import logging
from typing import Final

from streamlog.errors import StreamlogError
from streamlog.metadata.commands import AwaitApplied, DescribeCluster
from streamlog.metadata.image import Image
from streamlog.server.context import Context

logger = logging.getLogger(__name__)

CATCH_UP_S: Final = 0.5
"""How long a request waits for the latest metadata, before what there is will do."""


async def newest_image(context: Context) -> Image:
    """All that was decided before this was called; what another node was told is found here.

    Without a controller nothing is decided, and the image is what this node has.
    """
    metadata = context.metadata
    try:
        async with asyncio.timeout(CATCH_UP_S):
            described = await metadata.request(DescribeCluster())
            offset = int(described.result["high_watermark"])
            command = AwaitApplied(offset=offset, wait_ms=int(CATCH_UP_S * 1000))
            await metadata.take(command, forwarded=True)
    except (StreamlogError, TimeoutError) as error:
        logger.debug("metadata may be old", extra={"error": str(error)})
    return metadata.image
