"""The headers by which a publisher asks for something. Pure.

Names match exactly, as JetStream's do, and so do values, blanks at their end included; of a
repeated one the first counts.
"""

import re
from collections.abc import Mapping

Headers = Mapping[bytes, bytes]

API_LEVEL = 2
"""Of JetStream's API: that of its version 2.12. Of its features at this level the missing ones are
refused by name."""

_HEADER = re.compile(rb"\r\n(Nats-[^:\r\n]*|Streamlog-Ack):[ \t]*([^\r\n]*)")


def publish_headers(header_block: bytes) -> dict[bytes, bytes]:
    """Those of a NATS header block that matter, by name."""
    found: dict[bytes, bytes] = {}
    for name, value in _HEADER.findall(header_block):
        found.setdefault(name, value)
    return found
