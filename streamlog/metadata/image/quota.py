"""What a client may use, by its client id (KIP-13, KIP-546). Pure.

Each node keeps to it by itself, as Kafka's brokers do: a client that talks to three nodes may use
three times as much. A key without a value is not limited; but a client id with some values of its
own goes by the default for the others.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[float, Field(gt=0, le=2**63 - 1, allow_inf_nan=False)]
"""So many a second."""

QuotaKey = Literal["producer_byte_rate", "consumer_byte_rate", "request_rate"]

QUOTAS_MAX: Final = 10_000
"""Client ids that have one of their own."""


class Quota(BaseModel):
    """Limits of one client id, or of each that has none of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    producer_byte_rate: Rate | None = None
    """Bytes of Produce requests, as they come."""
    consumer_byte_rate: Rate | None = None
    """Bytes of records that Fetch answers with."""
    request_rate: Rate | None = None
    """Requests. Kafka has none such; its ``request_percentage`` is of threads that are not here."""

    def changed(self, values: dict[QuotaKey, Rate | None]) -> Self:
        """None ends a limit."""
        return self.model_copy(update=dict(values.items()))

    def or_else(self, default: Self) -> Self:
        """With the default's limits where there is none of its own."""
        own = self.model_dump(exclude_none=True)
        return default.model_copy(update=own)


QUOTA_KEYS: Final[tuple[QuotaKey, ...]] = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_rate",
)
NO_QUOTA: Final = Quota()
