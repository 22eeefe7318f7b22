"""What the headers of a message that came over NATS ask for. Pure.

Only those of batches that are marked so (``batch.PUBLISHED``) ask for anything: in a record that a
Kafka producer wrote, a copy of a stream for one, the same headers are data.

A header asks by its exact name; of a repeated one the first counts. Blanks before the value do not
belong to it. A header with a line end in it, which only an envelope can bring, asks for nothing.
``ingest.publish_headers`` reads the same out of NATS's own form of them: what a message asks for
while it is published is what it asks for when it is read back from the log.
"""

from collections.abc import Iterable
from typing import Final

ASKING: Final = "Nats-"
ACK: Final = "Streamlog-Ack"
_BLANKS: Final = b" \t"


def asked(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, bytes]:
    """Of one record, by name."""
    found: dict[str, bytes] = {}
    for name, value in headers:
        if (name.startswith(ASKING) or name == ACK) and name not in found:
            text = value or b""
            if b"\r" not in text and b"\n" not in text:
                found[name] = text.lstrip(_BLANKS)
    return found
