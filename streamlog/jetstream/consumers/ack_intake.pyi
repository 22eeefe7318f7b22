"""Acknowledgements as they come, compiled: those of one turn of the event loop are taken together."""

from collections.abc import Callable
from typing import NamedTuple

from streamlog.nats.router import Endpoint, Router

SOURCES: int

class AckRun(NamedTuple):
    """Positive acknowledgements of messages that follow each other."""

    partition: int
    mark: int
    start: int
    stop: int

class AckIntake(Endpoint):
    """Gathers positive acknowledgements that no client waits for; anything else is told at once, after what was
    gathered before it.
    """

    def __init__(
        self,
        router: Router,
        *,
        gathered: Callable[[str, str, list[AckRun]], None],
        told: Callable[[bytes, bytes, bytes, bytes], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """``gathered``: a stream, a consumer, and runs in the order in which they came; ``told``: subject, reply,
        header block and payload. What they raise goes to ``failed``.
        """
