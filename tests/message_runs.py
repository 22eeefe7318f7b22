"""Runs of messages, as they are given to consumers, and what consumers do with them, one by one."""

from collections.abc import Iterable

from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.jetstream.consumers.consumer import DeliverRun, Effect
from streamlog.record.compiled.message_run import MessageRun


def run_of(messages: Iterable[StoredMessage]) -> MessageRun:
    return MessageRun.of(message[:5] for message in messages)


def one_by_one(effects: Iterable[Effect]) -> list[Effect]:
    """With each delivery of a run as its own."""
    found: list[Effect] = []
    for it in effects:
        found += it.deliveries(it.start) if isinstance(it, DeliverRun) else [it]
    return found
