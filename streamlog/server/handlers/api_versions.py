"""ApiVersions (18), versions 0 to 4: what this node speaks. A newer one is answered as 0."""

from kio.schema.errors import ErrorCode

from streamlog.server.context import Context
from streamlog.wire.control import Message
from streamlog.wire.registry import APIS


async def handle(_request: Message, _version: int, _context: Context) -> Message:
    """No guards: whoever connects may ask."""
    return offered(ErrorCode.none)


def offered(error_code: ErrorCode) -> Message:
    """The list is given beside an error, too: clients choose from it when they ask again."""
    return {
        "error_code": error_code,
        "api_keys": [
            {"api_key": api.key, "min_version": api.version_min, "max_version": api.version_max}
            for api in APIS.values()
        ],
    }
