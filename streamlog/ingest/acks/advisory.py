"""JetStream's advisories: what is said, unasked, to whoever listens. Pure.

Each is a JSON object with a type, an id, a time, and the domain.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final

PREFIX: Final = "$JS.EVENT.ADVISORY"
TYPES: Final = "io.nats.jetstream.advisory.v1"


def advisory(
    kind: str, fields: dict[str, Any], *, event_id: str, now_ms: int, domain: str
) -> bytes:
    """``kind``: the last word of its type. Fields that are None are left out."""
    said = {"type": f"{TYPES}.{kind}", "id": event_id, "timestamp": timestamp(now_ms), **fields}
    said["domain"] = domain
    present = {name: value for name, value in said.items() if value is not None}
    return json.dumps(present, separators=(",", ":")).encode()


def timestamp(ms: int) -> str:
    """As Go writes times."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
