"""From a verb and a body to one reply."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from streamlog.admin.account import Account
from streamlog.admin.cluster import Cluster
from streamlog.admin.consumers import Consumers
from streamlog.admin.errors import (
    API_LEVEL_MISSING,
    BAD_REQUEST,
    OVERLOADED,
    ApiError,
    Refused,
    api_error,
)
from streamlog.admin.leaders import Leaders
from streamlog.admin.routes import Routes
from streamlog.admin.streams import Metadata, Streams
from streamlog.errors import StreamlogError
from streamlog.ingest.publish_headers import API_LEVEL

logger = logging.getLogger(__name__)

SYSTEM_REPLY_TYPE: Final = "io.nats.jetstream.api.v1.system_response"
LEVEL_HEADER: Final = "Nats-Required-Api-Level"


class Verbs:
    """Answers; counts what it answers."""

    def __init__(
        self, metadata: Metadata, leaders: Leaders, *, domain: str, now_ms: Callable[[], int]
    ) -> None:
        self._account = Account(metadata, leaders, domain)
        self.streams = Streams(metadata, leaders, domain=domain, now_ms=now_ms)
        self._routes = Routes(
            self.streams, Cluster(metadata, self.streams), Consumers(self.streams), self._account
        )

    async def reply(self, verb: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """Never raises what a request may be the reason of."""
        self._account.requests += 1
        route, name = self._routes.find(verb)
        if route is None:
            self._account.errors += 1
            return {"type": SYSTEM_REPLY_TYPE, "error": BAD_REQUEST.json()}
        try:
            route.first()
            if not has_api_level(headers):
                raise Refused(API_LEVEL_MISSING)
            result = await route.handler(name, route.read(body, route.shape))
        except Exception as error:
            told = {"type": route.reply_type, "error": self.failed(error, verb).json()}
            return {**told, **route.with_error}
        return {"type": route.reply_type, **result}

    def overloaded(self, verb: str) -> dict[str, Any]:
        """The reply to a request that there is no room for."""
        self._account.requests += 1
        self._account.errors += 1
        route, _ = self._routes.find(verb)
        kind = SYSTEM_REPLY_TYPE if route is None else route.reply_type
        return {"type": kind, "error": OVERLOADED.json()}

    def count(self) -> None:
        """A request that is answered elsewhere."""
        self._account.requests += 1

    def failed(self, error: Exception, verb: str) -> ApiError:
        """What is told of ``error``; one that nobody foresaw is logged, too."""
        self._account.errors += 1
        if not isinstance(error, Refused | StreamlogError):
            logger.error("management request failed", extra={"verb": verb}, exc_info=error)
        return api_error(error)


def has_api_level(headers: Mapping[str, str]) -> bool:
    """Whether what the request asks for is no more than there is."""
    wanted = headers.get(LEVEL_HEADER)
    if not wanted:
        return True
    try:
        return int(wanted) <= API_LEVEL
    except ValueError:
        return False
