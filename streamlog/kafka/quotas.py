"""Quotas: the rate limit and throttle time of each client (KIP-13, KIP-219).

A client that has used too much is answered at once, is told how long to wait, and nothing more is
read from its connection for so long. What nodes ask of each other is never counted.
"""

import asyncio
import math
from typing import Final, Literal

from immutables import Map

from streamlog.metadata.image.quota import NO_QUOTA, Quota
from streamlog.metrics import NodeMetrics
from streamlog.rate_limit import TokenBucket
from streamlog.wire import registry

Kind = Literal["produce", "fetch", "request"]
Quotas = Map[str | None, Quota]
"""As the image has them."""

BUCKETS_MAX: Final = 10_000
"""Of clients; beyond it, what is known of the one that was heard of longest ago is forgotten."""

UNCOUNTED: Final = frozenset(
    {
        registry.SASL_HANDSHAKE,
        registry.SASL_AUTHENTICATE,
        registry.API_VERSIONS,  # a replica hurries its fetches by it
        registry.VOTE,
        registry.BEGIN_QUORUM_EPOCH,
        registry.END_QUORUM_EPOCH,
        registry.ENVELOPE,
        registry.FETCH_SNAPSHOT,
        registry.WRITE_TXN_MARKERS,
    }
)


class ClientQuotas:
    """Buckets by client and kind; made when they are first needed, and changed with the quotas."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, Kind], TokenBucket] = {}  # the last used one last
        self._quotas: Quotas = Map()
        self._found: dict[str, Quota] = {}
        """What ``_quotas`` come to, by client."""

    def __len__(self) -> int:
        return len(self._buckets)

    def charge(
        self, client_id: str, quotas: Quotas, window_ms: int, metrics: NodeMetrics
    ) -> "RequestQuota | None":
        """For one request; None where nothing limits this client."""
        if quotas is not self._quotas:
            self._quotas, self._found = quotas, {}
        quota = self._found.get(client_id)
        if quota is None:
            if len(self._found) >= BUCKETS_MAX:
                self._found.clear()
            quota = self._found[client_id] = quota_of(client_id, quotas)
        return (
            None if quota is NO_QUOTA else RequestQuota(client_id, quota, self, window_ms, metrics)
        )

    def bucket(
        self, client_id: str, kind: Kind, rate: float, *, window_s: float, now_s: float
    ) -> TokenBucket:
        bucket = self._buckets.pop((client_id, kind), None)
        if bucket is None:
            bucket = TokenBucket(rate, window_s, now_s)
            if len(self._buckets) >= BUCKETS_MAX:
                del self._buckets[next(iter(self._buckets))]
        elif bucket.rate != rate:
            bucket.set_rate(rate, now_s)
        self._buckets[client_id, kind] = bucket
        return bucket


class RequestQuota:
    """What one request costs. ``throttle_ms`` grows with what is charged."""

    __slots__ = ("_client_id", "_metrics", "_quota", "_throttles", "_window_s", "throttle_ms")

    def __init__(
        self,
        client_id: str,
        quota: Quota,
        throttles: ClientQuotas,
        window_ms: int,
        metrics: NodeMetrics,
    ) -> None:
        self.throttle_ms = 0
        """How long the client is to wait; nothing more is read from it."""
        self._client_id = client_id
        self._quota = quota
        self._throttles = throttles
        self._window_s = window_ms / 1000
        self._metrics = metrics

    def request(self) -> None:
        """It was made."""
        self._take("request", self._quota.request_rate, 1)

    def produced(self, size_bytes: int) -> None:
        """So long it was."""
        self._take("produce", self._quota.producer_byte_rate, size_bytes)

    def fetched(self, size_bytes: int) -> None:
        """So many bytes of records it is answered with."""
        self._take("fetch", self._quota.consumer_byte_rate, size_bytes)

    def fetch_bytes_max(self) -> int | None:
        """What may be fetched at once, so that no wait is longer than the window; None: all."""
        rate = self._quota.consumer_byte_rate
        return None if rate is None else max(1, int(rate * self._window_s))

    def may_fetch(self) -> bool:
        """False while the client has to wait, as it was told on another connection."""
        rate = self._quota.consumer_byte_rate
        if rate is None:
            return True
        now_s = asyncio.get_running_loop().time()
        debt_s = self._bucket("fetch", rate, now_s).debt_s(now_s)
        self._told("fetch", debt_s)
        return not debt_s

    def _take(self, kind: Kind, rate: float | None, amount: float) -> None:
        if rate is not None and amount:
            now_s = asyncio.get_running_loop().time()
            self._told(kind, self._bucket(kind, rate, now_s).take(amount, now_s))

    def _bucket(self, kind: Kind, rate: float, now_s: float) -> TokenBucket:
        return self._throttles.bucket(
            self._client_id, kind, rate, window_s=self._window_s, now_s=now_s
        )

    def _told(self, kind: Kind, wait_s: float) -> None:
        if wait_s > 0:
            self.throttle_ms = max(self.throttle_ms, math.ceil(wait_s * 1000))
            self._metrics.throttled.labels(kind).inc()
            self._metrics.throttle_seconds.labels(kind).inc(wait_s)


def quota_of(client_id: str, quotas: Quotas) -> Quota:
    """Its own, and the default where it has none; NO_QUOTA itself where that limits nothing."""
    quota = quotas.get(client_id, NO_QUOTA).or_else(quotas.get(None, NO_QUOTA))
    return NO_QUOTA if quota == NO_QUOTA else quota
