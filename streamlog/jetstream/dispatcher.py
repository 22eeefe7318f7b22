"""From a verb and a body to one reply."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from streamlog.acl.rules import Operation
from streamlog.authz.permissions import Permissions
from streamlog.errors import StreamlogError
from streamlog.ingest.admission.publish_headers import API_LEVEL
from streamlog.jetstream.auth.authorization import check_verb
from streamlog.jetstream.auth.visibility import VisibleMetadata
from streamlog.jetstream.errors import (
    API_LEVEL_MISSING,
    BAD_REQUEST,
    OVERLOADED,
    ApiError,
    ApiRefused,
    api_error,
)
from streamlog.jetstream.leaders.leader_router import LeaderRouter
from streamlog.jetstream.routes import Routes
from streamlog.jetstream.verbs.account import Account, AccountCounts
from streamlog.jetstream.verbs.cluster import ClusterVerbs
from streamlog.jetstream.verbs.consumers import Consumers
from streamlog.jetstream.verbs.read_barrier import ReadBarrier
from streamlog.jetstream.verbs.streams import ManagedMetadata, Streams

logger = logging.getLogger(__name__)

SYSTEM_REPLY_TYPE: Final = "io.nats.jetstream.api.v1.system_response"
LEVEL_HEADER: Final = "Nats-Required-Api-Level"


class RequestDispatcher:
    """Answers; counts what it answers."""

    def __init__(
        self,
        metadata: ManagedMetadata,
        leaders: LeaderRouter,
        *,
        domain: str,
        now_ms: Callable[[], int],
        access: Permissions | None = None,
        for_all: "RequestDispatcher | None" = None,
    ) -> None:
        """``for_all``: the one that this is as one asker sees it."""
        self.access = access
        self._metadata, self._leaders, self._domain, self._now_ms = (
            metadata, leaders, domain, now_ms,
        )  # fmt: skip
        self._counts: AccountCounts = AccountCounts() if for_all is None else for_all._counts
        freshness: ReadBarrier | None = None if for_all is None else for_all.freshness
        self.streams = Streams(
            metadata,
            leaders,
            domain=domain,
            now_ms=now_ms,
            access=access,
            freshness=freshness,
        )
        self.freshness: ReadBarrier = self.streams.freshness
        sees_all = access is None or access.allows_cluster(Operation.DESCRIBE)
        account = Account(metadata, leaders, domain, self._counts, sees_all=sees_all)
        self._routes = Routes(
            self.streams, ClusterVerbs(metadata, self.streams), Consumers(self.streams), account
        )

    def seen_by(self, access: Permissions | None) -> "RequestDispatcher":
        """For one who may not do everything."""
        if access is None:
            return self
        metadata = VisibleMetadata(self._metadata, access)
        return RequestDispatcher(
            metadata, self._leaders, domain=self._domain, now_ms=self._now_ms, access=access,
            for_all=self,
        )  # fmt: skip

    async def reply(self, verb: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """Never raises what a request may be the reason of."""
        self._counts.requests += 1
        route, name = self._routes.find(verb)
        if route is None:
            self._counts.errors += 1
            return {"type": SYSTEM_REPLY_TYPE, "error": BAD_REQUEST.json()}
        try:
            if self.access is not None:
                check_verb(self.access, verb, name)
            route.first()
            if not has_api_level(headers):
                raise ApiRefused(API_LEVEL_MISSING)
            result = await route.handler(name, route.read(body, route.shape))
        except Exception as error:
            told = {"type": route.reply_type, "error": self.failed(error, verb).json()}
            return {**told, **route.with_error}
        return {"type": route.reply_type, **result}

    def split(self, verb: str) -> tuple[str, str]:
        """What is to be done, and with which stream, if with one."""
        _, name = self._routes.find(verb)
        return (verb.removesuffix(f".{name}"), name) if name else (verb, "")

    def overloaded(self, verb: str) -> dict[str, Any]:
        """The reply to a request that there is no room for."""
        self._counts.requests += 1
        self._counts.errors += 1
        route, _ = self._routes.find(verb)
        kind = SYSTEM_REPLY_TYPE if route is None else route.reply_type
        return {"type": kind, "error": OVERLOADED.json()}

    def count(self) -> None:
        """A request that is answered elsewhere."""
        self._counts.requests += 1

    def failed(self, error: Exception, verb: str) -> ApiError:
        """What is told of ``error``; one that nobody foresaw is logged, too."""
        self._counts.errors += 1
        if not isinstance(error, ApiRefused | StreamlogError):
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
