"""A channel's configuration: the whole of it, at one sequence number. Pure.

It travels as JSON, the value of a configuration record. All nodes must read one text alike, so
nothing is coerced, and no key is left over. A configuration of a later ``format`` is not guessed
at: ``later_format`` tells, and a node that meets one it cannot read halts that channel.
"""

import json
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from streamlog.errors import InvalidChannelConfig

FORMAT: Final = 1
"""The latest that is known here."""
CONFIGURATION_BYTES_MAX: Final = 1 << 20
IDENTITIES_MAX: Final = 1_000
"""Of each list."""
BLOCK_BYTES_MAX: Final = 128 << 20

KIB: Final = 1 << 10
MIB: Final = 1 << 20

ChannelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}$")]
"""One token of a NATS subject, and a folder's name."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.@-]{1,100}$")]
PublicKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""Ed25519, 32 bytes in hexadecimal (RFC 8032)."""


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class BatchLimits(_Value):
    """Where a block ends. Sizes are those of records as a block encodes them."""

    batch_size: int = Field(default=500, ge=1, le=1_000_000)
    """Records; a block of so many is cut at once."""
    batch_timeout_ms: int = Field(default=2_000, ge=1, le=86_400_000)
    """From the first record of a block until a node asks for it to be cut as it is."""
    preferred_max_bytes: int = Field(default=2 * MIB, ge=1, le=BLOCK_BYTES_MAX)
    """A block stays below, unless one record alone is larger."""
    absolute_max_bytes: int = Field(default=10 * MIB, ge=1, le=BLOCK_BYTES_MAX)
    """Larger records are refused by the endpoints."""

    @model_validator(mode="after")
    def _sizes_in_order(self) -> Self:
        if self.preferred_max_bytes > self.absolute_max_bytes:
            raise ValueError("preferred_max_bytes is above absolute_max_bytes")
        return self


class Identity(_Value):
    """A name, and the key that proves it."""

    name: Name
    public_key: PublicKey


class OrderingNode(_Value):
    """A node of the consenter set."""

    name: Name
    public_key: PublicKey | None = None
    """None: its blocks are not signed."""
    address: str = Field(default="", max_length=1_000)
    """For people; followers ask by name."""


Identities = Annotated[tuple[Identity, ...], Field(max_length=IDENTITIES_MAX)]
OrderingNodes = Annotated[tuple[OrderingNode, ...], Field(max_length=IDENTITIES_MAX)]


class ChannelConfig(_Value):
    """Everything that the nodes of a channel agree on beside its records."""

    format: int = Field(default=FORMAT, ge=1, le=FORMAT)
    channel: ChannelName
    sequence: int = Field(default=0, ge=0, lt=2**63)
    """0 in the genesis, and one more in each configuration that follows."""
    start_offset: int = Field(default=0, ge=0, lt=2**63)
    """Of the stream: the chain has its records from here on. Fixed by the genesis."""
    limits: BatchLimits = BatchLimits()
    administrators: Identities = ()
    """Who may change the configuration; where there are none, the writers may."""
    writers: Identities = ()
    """None: every client may write, and signatures are not looked at."""
    readers: Identities = ()
    """None: every client may read."""
    consenters: OrderingNodes = ()
    """Who cuts blocks; none: every node that serves the channel."""

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        for field in ("administrators", "writers", "readers", "consenters"):
            names = [entry.name for entry in getattr(self, field)]
            if len(set(names)) < len(names):
                raise ValueError(f"{field} has a name twice")
        return self

    def is_consenter(self, node: str) -> bool:
        """Whether the node of that name cuts blocks itself, or follows those that do."""
        return not self.consenters or any(entry.name == node for entry in self.consenters)

    @property
    def vouchers(self) -> tuple[Identity, ...]:
        """The consenters that sign their blocks."""
        return tuple(
            Identity(name=entry.name, public_key=entry.public_key)
            for entry in self.consenters
            if entry.public_key is not None
        )

    def encode(self) -> bytes:
        """As JSON."""
        return self.model_dump_json().encode()


def parse_config(text: bytes) -> ChannelConfig:
    """Raises InvalidChannelConfig, in one line."""
    if len(text) > CONFIGURATION_BYTES_MAX:
        raise InvalidChannelConfig(f"{len(text)} bytes, at most {CONFIGURATION_BYTES_MAX} can be")
    try:
        return ChannelConfig.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "configuration"
        raise InvalidChannelConfig(f"{where}: {first['msg']}") from None


def later_format(text: bytes) -> tuple[int, int] | None:
    """Format and sequence of a configuration that a later streamlog wrote; None: it is not one."""
    try:
        value = json.loads(text) if len(text) <= CONFIGURATION_BYTES_MAX else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    found, sequence = value.get("format"), value.get("sequence")
    if type(found) is not int or type(sequence) is not int or found <= FORMAT:
        return None
    return found, sequence
