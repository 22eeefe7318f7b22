"""What a channel takes under one configuration: at an endpoint, and again from the log. Pure.

An endpoint refuses at once and says why; the log is the judge. What came past the endpoint (a plain NATS
message), or was overtaken by a new configuration, is left out by all nodes alike. Only size is the
endpoint's alone: whatever is in the log may stand in a block by itself.
"""

from streamlog.errors import (
    InvalidChannelConfig,
    InvalidRecord,
    InvalidSignature,
    RecordTooLarge,
    StaleConfiguration,
)
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.encoding import record_bytes
from streamlog.ledger.core.entry import (
    CONFIGURATION,
    KIND_HEADER,
    ORDINARY,
    SIGNATURE_HEADER,
    SIGNER_HEADER,
    Message,
    header_of,
)
from streamlog.ledger.core.signing import Keyring, record_message, signature_of
from streamlog.record.codec import Record


class ChannelPolicy:
    """The rules of a channel, until its next configuration."""

    def __init__(self, config: ChannelConfig) -> None:
        self.config = config
        self.demands_signatures = bool(config.writers)
        """Of ordinary records."""
        self._writers = Keyring(config.writers)
        self._administrators = Keyring(config.administrators or config.writers)

    def check_message(self, message: Message) -> None:
        """For the endpoint: an ordinary record.

        Raises RecordTooLarge, InvalidRecord or InvalidSignature.
        """
        self._check_size(message)
        if any(name == KIND_HEADER for name, _ in message.headers):
            raise InvalidRecord(
                f"the header {KIND_HEADER} is the ledger's own; leave it out of ordinary records"
            )
        self.check_record(message)

    def check_update_message(self, message: Message, update: ChannelConfig) -> None:
        """For the endpoint: a configuration record that holds ``update``."""
        self._check_size(message)
        self.check_update(update)
        self.check_administrator(message)

    def check_record(self, record: Record | Message) -> None:
        """An ordinary record. Raises InvalidSignature where a writer's is demanded."""
        if self.demands_signatures:
            self._check_signature(record, ORDINARY, self._writers)

    def check_administrator(self, record: Record | Message) -> None:
        """A configuration record. Raises InvalidSignature where one is demanded."""
        if self._administrators:
            self._check_signature(record, CONFIGURATION, self._administrators)

    def check_update(self, update: ChannelConfig) -> None:
        """That it may follow this one. Raises StaleConfiguration or InvalidChannelConfig."""
        current = self.config
        if update.channel != current.channel:
            raise InvalidChannelConfig(
                f"channel: {update.channel!r} in the stream of {current.channel!r}"
            )
        if update.sequence != current.sequence + 1:
            raise StaleConfiguration(
                f"sequence {update.sequence} where {current.sequence + 1} follows: fetch the"
                " current configuration, and change that"
            )
        if update.start_offset != current.start_offset:
            raise InvalidChannelConfig(f"start_offset: {current.start_offset} for good")

    def _check_size(self, message: Message) -> None:
        size, limit = record_bytes(message), self.config.limits.absolute_max_bytes
        if size > limit:
            raise RecordTooLarge(
                f"a record of {size} bytes, absolute_max_bytes of channel"
                f" {self.config.channel!r} is {limit}"
            )

    def _check_signature(self, record: Record | Message, kind: bytes, ring: Keyring) -> None:
        channel = self.config.channel
        role = "administrator" if kind == CONFIGURATION else "writer"
        signer = (header_of(record.headers, SIGNER_HEADER) or b"").decode("utf-8", "replace")
        text = header_of(record.headers, SIGNATURE_HEADER)
        if not signer or text is None:
            raise InvalidSignature(
                f"channel {channel!r} wants a signature of its {role}s: sign the record, and name"
                f" the signer ({SIGNER_HEADER}, {SIGNATURE_HEADER})"
            )
        if signer not in ring:
            raise InvalidSignature(f"{signer!r} is no {role} of channel {channel!r}")
        try:
            signature = signature_of(text)
        except ValueError as error:
            raise InvalidSignature(f"{SIGNATURE_HEADER}: {error}") from None
        message = record_message(channel, kind, record.key, record.value)
        if not ring.is_signed(signer, message, signature):
            raise InvalidSignature(
                f"the signature is not that of {signer!r} over this record in {channel!r}"
            )
