"""The verb about the account: there are no accounts, and what is used has no quota."""

from typing import Any

from streamlog.acl.rules import Operation
from streamlog.control.control import Control
from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.ingest.admission.publish_headers import API_LEVEL
from streamlog.jetstream.requests.fields import Fields
from streamlog.metadata.stream.stream_config import is_internal, is_jetstream_name


class AccountCounts:
    """Of requests, of all clients together."""

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0


class Account:
    """As one asker sees it."""

    def __init__(
        self,
        control: Control,
        leaders: LeaderRouter,
        domain: str,
        counts: AccountCounts,
    ) -> None:
        self._control = control
        self._leaders = leaders
        self._domain = domain
        self._counts = counts

    async def info(self, _: str, __: Fields) -> dict[str, Any]:
        access = self._control.caller.access
        sees_all = access is None or access.allows_cluster(Operation.DESCRIBE)
        return {
            "memory": 0,
            "storage": await self._leaders.size_bytes() if sees_all else 0,
            "reserved_memory": 0,
            "reserved_storage": 0,
            "streams": sum(
                is_jetstream_name(it) and not is_internal(it)
                for it in self._control.streams.image.streams
            ),
            "consumers": 0,
            "limits": {
                "max_memory": -1,
                "max_storage": -1,
                "max_streams": -1,
                "max_consumers": -1,
                "max_ack_pending": -1,
                "memory_max_stream_bytes": -1,
                "storage_max_stream_bytes": -1,
                "max_bytes_required": False,
            },
            "domain": self._domain,
            "api": {
                "level": API_LEVEL,
                "total": self._counts.requests,
                "errors": self._counts.errors,
            },
        }
