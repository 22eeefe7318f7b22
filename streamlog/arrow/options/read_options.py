"""What a read was asked to do, in the types that readers use; callers parse their own forms."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from streamlog.arrow.options.encryption_keys import KeySources
from streamlog.arrow.options.security_files import SecurityFiles
from streamlog.arrow.options.store_options import StoreOptions
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.model import TopicPartition
from streamlog.wire.special_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from streamlog.client.security import Security

MIB: Final = 1 << 20
FETCH_BYTES: Final = 4 * MIB
FETCH_BYTES_MAX: Final = 256 * MIB
FETCH_TIMEOUT_MS: Final = 120_000
FETCH_RETRIES: Final = 3
FETCH_RETRIES_MAX: Final = 1_000
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 4 * MIB
BATCH_BYTES_MAX: Final = 64 * MIB

Position = int | dict[TopicPartition, int]
"""EARLIEST or LATEST of every partition; or for each partition one of these or an offset."""

Times = int | dict[TopicPartition, int] | None
"""Milliseconds: one for every partition, or one for each; None: not given."""


@dataclass(frozen=True)
class FetchOptions:
    """How readers ask the nodes."""

    max_bytes: int = FETCH_BYTES
    timeout_ms: int = FETCH_TIMEOUT_MS
    """How long a partition may be without a node that serves it."""
    retries: int = FETCH_RETRIES
    """How often a batch that comes damaged is asked for again, each time of another replica."""


@dataclass(frozen=True)
class OptionNames:
    """What the caller calls the options that an error names. The defaults are those of ``streamlog.arrow.read``."""

    streams: str = "stream"
    name_streams: str = "name one"
    start: str = "start"
    start_time: str = "start"
    start_times: str = "start"
    late_start: str = ""
    """The setting that takes the end where no record is as late as the start."""
    end: str = "end"
    end_time: str = "end"
    end_times: str = "end"
    tolerate_loss: str = "fail_on_data_loss=False"


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What a read was asked to do. Can be pickled, for readers may run on other machines."""

    path: str | None = None
    servers: str | None = None
    """Either this or ``path``."""
    store: StoreOptions | None = None
    """With ``servers``: what is there is read there."""
    subscription: StreamSubscription
    starting: Position = EARLIEST
    ending: Position = LATEST
    starting_times: Times = None
    """If set, it wins over ``starting``; the same holds for the end."""
    ending_times: Times = None
    late_start: Literal["error", "latest"] = "error"
    """What to do where no record is as late as ``starting_times``."""
    fail_on_data_loss: bool = True
    check_crc: bool = True
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    fetch: FetchOptions = field(default_factory=FetchOptions)
    security: "SecurityFiles | Security" = field(default_factory=SecurityFiles)
    keys: KeySources = field(default_factory=KeySources)
    names: OptionNames = field(default_factory=OptionNames)
