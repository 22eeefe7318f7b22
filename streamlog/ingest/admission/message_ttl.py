"""Messages that say how long they stay: ``Nats-TTL``. Pure; ``partition.deletes.message_ttl`` has them go."""

from enum import Enum, auto
from typing import Final

from streamlog.ingest.admission.publish_headers import Headers
from streamlog.ingest.admission.refusal import PublishRefusal
from streamlog.record.published import FOR_EVER, NO_LIFETIME, lifetime_s

DISABLED: Final = PublishRefusal(400, 10166, "per-message TTL is disabled", "ttl")
_INVALID: Final = PublishRefusal(400, 10165, "invalid per-message TTL", "ttl")
_NOT_FOR_EVER: Final = PublishRefusal(
    400, 10165, "invalid per-message TTL: the stream has a max_age, which holds for all", "ttl"
)


class Lifetimes(Enum):
    """What a stream allows."""

    NONE = auto()
    LIMITED = auto()
    """Its retention by age takes whole segments, whatever a message in them says."""
    ANY = auto()


def objection(headers: Headers, allowed: Lifetimes) -> PublishRefusal | None:
    """To asking at all; what is wrong is found later."""
    lifetime = _asked(headers)
    return DISABLED if lifetime and allowed is Lifetimes.NONE else None


def late_objection(headers: Headers, allowed: Lifetimes) -> PublishRefusal | None:
    """To what is asked for."""
    lifetime = _asked(headers)
    if lifetime == FOR_EVER and allowed is Lifetimes.LIMITED:
        return _NOT_FOR_EVER
    return _INVALID if lifetime is None else None


def objection_in_batch(headers: Headers, allowed: Lifetimes) -> PublishRefusal | None:
    """Both at once."""
    if _asked(headers) != NO_LIFETIME and allowed is Lifetimes.NONE:
        return DISABLED
    return late_objection(headers, allowed)


def lengthened(headers: Headers, shortest_s: int) -> bytes | None:
    """The lifetime that is stored in place of a shorter one; None: it is long enough, or there is none."""
    lifetime = _asked(headers)
    is_too_short = lifetime is not None and 0 < lifetime < shortest_s
    return str(shortest_s).encode() if is_too_short else None


def _asked(headers: Headers) -> int | None:
    return lifetime_s(headers.get(b"Nats-TTL", b""))
