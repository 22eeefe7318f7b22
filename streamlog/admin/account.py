"""The verb about the account: there are no accounts, and what is used has no quota."""

from typing import Any

from streamlog.admin.fields import Fields
from streamlog.admin.leaders import Leaders
from streamlog.admin.streams import Metadata
from streamlog.ingest.publish_headers import API_LEVEL
from streamlog.metadata.stream import INTERNAL_STREAMS


class Account:
    """Counts the requests, too."""

    def __init__(self, metadata: Metadata, leaders: Leaders, domain: str) -> None:
        self._metadata = metadata
        self._leaders = leaders
        self._domain = domain
        self.requests = 0
        self.errors = 0

    async def info(self, _: str, __: Fields) -> dict[str, Any]:
        return {
            "memory": 0,
            "storage": await self._leaders.size_bytes(),
            "reserved_memory": 0,
            "reserved_storage": 0,
            "streams": len(set(self._metadata.image.streams) - INTERNAL_STREAMS),
            "consumers": 0,
            "limits": {
                "max_memory": 0,
                "max_storage": -1,
                "max_streams": -1,
                "max_consumers": 0,
                "max_ack_pending": -1,
                "memory_max_stream_bytes": -1,
                "storage_max_stream_bytes": -1,
                "max_bytes_required": False,
            },
            "domain": self._domain,
            "api": {"level": API_LEVEL, "total": self.requests, "errors": self.errors},
        }
