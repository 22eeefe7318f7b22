"""The subjects of a JetStream domain that stand for others: those of buckets.

A client that names a domain writes to a key-value bucket by ``$JS.<domain>.API.$KV.<bucket>.<key>``. nats-server maps
that to ``$KV.<bucket>.<key>`` before it looks at permissions, subscriptions and streams, and it maps ``$OBJ.>``, too:
such a message is in every respect one to the subject without the domain.
"""

from typing import Final

BUCKETS: Final = (b"$KV.", b"$OBJ.")


def domain_prefix(domain: str) -> bytes:
    """What stands before each subject of the domain."""
    return f"$JS.{domain}.API.".encode()


def bucket_subject(subject: bytes, prefix: bytes) -> bytes | None:
    """What the subject stands for; None: it is no bucket's. ``prefix`` empty: there is no domain.

    ``Connection.domain_prefix`` is the same, compiled.
    """
    if not prefix or not subject.startswith(prefix):
        return None
    rest = subject[len(prefix) :]
    return rest if rest.startswith(BUCKETS) and rest not in BUCKETS else None


def in_domain(subject: str, prefix: bytes) -> str | None:
    """How a client that names the domain writes a stream's subject; None: not otherwise than others do."""
    return prefix.decode() + subject if prefix and subject.encode().startswith(BUCKETS) else None
