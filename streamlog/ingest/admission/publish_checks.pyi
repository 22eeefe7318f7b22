"""Whether all that a message's headers ask for holds, compiled.

A ``RecordCollector`` with ``checks`` asks them before its ``admit``. They know ``Nats-Msg-Id``,
``Nats-Expected-Stream``, ``Nats-Expected-Last-Sequence``, ``Nats-Expected-Last-Msg-Id`` and, of its
own subject, ``Nats-Expected-Last-Subject-Sequence``, which alone costs a call of Python code. A
message that asks for nothing else, and for which all of it holds, is stored, and its id is in the
window. Any other message is judged by ``admit`` as if there were no checks.
"""

from collections.abc import Callable
from typing import final

from streamlog.ingest.admission.duplicate_window import DuplicateWindow
from streamlog.ingest.admission.expectations import SubjectSequence

SOURCES: int

@final
class PublishChecks:
    """Of one partition."""

    def __init__(
        self,
        stream: str,
        window: DuplicateWindow,
        *,
        look: Callable[[PublishChecks], None],
        last_on: SubjectSequence,
    ) -> None:
        """``look`` is called for the first message of a read, and after each message that ``admit``
        judged; it calls ``see``.
        """

    def see(
        self,
        *,
        is_open: bool,
        log_end_offset: int,
        messages_end: int,
        now_ms: int,
        default_policy: int,
    ) -> None:
        """``is_open``: messages that ask for no more than their checks are stored now, and answered
        as the stream is set. ``messages_end``: from there to the log's end no message has come.
        ``default_policy``: what the stream is set to, as ``liftbridge.envelope`` has it.
        """
