"""What a write was asked to do, in the types that writers use; callers parse their own forms."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streamlog.arrow.options.security_files import SecurityFiles
from streamlog.record.compression import Compression

if TYPE_CHECKING:
    from streamlog.client.security import Security

BATCH_BYTES: Final = 1_000_000
BATCH_BYTES_MAX: Final = 64 << 20
DELIVERY_TIMEOUT_MS: Final = 120_000


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """What a write was asked to do. Can be pickled, for writers may run on other machines."""

    servers: str
    topic: str | None
    """Of all rows; None: each names its own."""
    compression: Compression = Compression.NONE
    write_id: str | None = None
    """What a batch write calls itself, so that it can be repeated."""
    batch_bytes: int = BATCH_BYTES
    """Of the records of a record batch, uncompressed; one larger record goes alone."""
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    """For a record batch, over leader changes and broken connections."""
    security: "SecurityFiles | Security" = field(default_factory=SecurityFiles)
