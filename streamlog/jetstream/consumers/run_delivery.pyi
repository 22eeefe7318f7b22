"""A run of messages on its way to a client, compiled: the first deliveries of consecutive messages."""

from streamlog.nats.router import Router
from streamlog.record.compiled.message_run import MessageRun

SOURCES: int

def deliver_run(
    router: Router,
    subject: bytes,
    run: MessageRun,
    start: int,
    stop: int,
    *,
    head: bytes,
    sequence: int,
    time_mark_ns: int,
    pending: int,
    unnamed: bytes,
) -> int:
    """Give the messages from index ``start`` up to ``stop`` to the subscribers of ``subject``, in the node's name; a
    client sees each with its own subject, or with ``unnamed`` if it has none.

    The reply subjects are ``head`` and four numbers: the stream sequence, the consumer sequence from ``sequence`` on,
    the time in ns to which ``time_mark_ns`` is added, and how many messages are pending: ``pending`` after the first,
    one less after each. Returns how many there were before one that nothing subscribes to; the rest is not sent.
    """

def fitting(
    run: MessageRun,
    start: int,
    stop: int,
    *,
    head_bytes: int,
    sequence: int,
    pending: int,
    bytes_max: int,
) -> tuple[int, int]:
    """How many messages come to ``bytes_max``, the one that reaches it included, and their bytes: all but the line,
    as nats-server counts them. ``head_bytes``: of ``head``.
    """
