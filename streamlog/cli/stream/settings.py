"""The settings of a stream as options, once for ``stream add`` and ``stream edit``."""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, get_type_hints

import typer

_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)(ms|s|m|h|d)")


def milliseconds(text: str) -> int:
    """A duration such as ``7d``; a number without a unit is one of milliseconds."""
    if re.fullmatch(r"-1|\d+", text):
        return int(text)
    found = _DURATION.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration; write 7d, 12h, 30m, 10s or 500ms")
    return int(found[1]) * _MS[found[2]]


OPTIONS: Final[dict[str, Any]] = {
    "subject": Annotated[
        list[str] | None,
        typer.Option(
            "--subject", help="A NATS subject to store; may be repeated. Default: the name."
        ),
    ],
    "partitions": Annotated[
        int | None,
        typer.Option(
            min=1, help="Partition i > 0 takes SUBJECT.i, if --partition-by says no other."
        ),
    ],
    "partition_by": Annotated[
        str | None,
        typer.Option(
            help="subject; key: by the hash of Streamlog-Key; tokens:2,3: of tokens of the subject."
        ),
    ],
    "group": Annotated[
        str | None,
        typer.Option(help="Share the subject's messages with the other streams of this group."),
    ],
    "replicas": Annotated[int | None, typer.Option(min=1, help="Copies of each partition.")],
    "retention_bytes": Annotated[
        int | None, typer.Option("--max-bytes", help="Bytes kept of each partition; -1: no limit.")
    ],
    "retention_ms": Annotated[
        int | None,
        typer.Option(
            "--max-age",
            parser=milliseconds,
            metavar="DURATION",
            help="How long records are kept: 7d, 12h, 30m, 10s, 500ms; -1: for ever.",
        ),
    ],
    "retention_messages": Annotated[
        int | None, typer.Option("--max-msgs", help="Records kept of each partition; -1: no limit.")
    ],
    "message_bytes_max": Annotated[
        int | None,
        typer.Option("--max-msg-size", help="Largest message in bytes; -1: as the node has it."),
    ],
    "duplicate_window_ms": Annotated[
        int | None,
        typer.Option(
            "--dupe-window",
            parser=milliseconds,
            metavar="DURATION",
            help="How long a Nats-Msg-Id is remembered: 2m, 30s.",
        ),
    ],
    "sync": Annotated[str | None, typer.Option(help="commit, interval or os: when to fdatasync.")],
    "compression": Annotated[str | None, typer.Option(help="none, gzip, snappy, lz4 or zstd.")],
    "segment_bytes": Annotated[
        int | None, typer.Option(help="Size at which a new segment begins.")
    ],
    "segment_age_ms": Annotated[
        int | None, typer.Option(help="Age at which a new segment begins, in ms.")
    ],
    "auto_pause_ms": Annotated[
        int | None,
        typer.Option(min=0, help="Close the files after so long without a record; 0: never."),
    ],
    "cleanup_policy": Annotated[
        str | None,
        typer.Option(
            help="delete: retention; compact: the last record of each key; compact,delete."
        ),
    ],
    "delete_retention_ms": Annotated[
        int | None, typer.Option(help="How long a tombstone stays once compaction has passed it.")
    ],
    "min_compaction_lag_ms": Annotated[
        int | None, typer.Option(help="Younger records are not compacted.")
    ],
    "max_compaction_lag_ms": Annotated[
        int | None, typer.Option(help="Older ones are, however few. -1: no.")
    ],
    "min_cleanable_dirty_ratio": Annotated[
        float | None, typer.Option(help="The share not compacted yet, from which on it is: 0 to 1.")
    ],
    "min_isr": Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Fewer in sync, and acks=all is refused. Default: a majority of the replicas.",
        ),
    ],
    "unclean_election": Annotated[
        bool | None,
        typer.Option(help="May a replica that lacks records lead, if no other is alive?"),
    ],
    "acks": Annotated[str | None, typer.Option(help="all, leader or none: when to acknowledge.")],
    "max_messages_per_subject": Annotated[
        int | None,
        typer.Option(
            "--max-msgs-per-subject",
            help="Keep the newest so many messages of each subject; -1: all.",
        ),
    ],
    "allow_atomic": Annotated[
        bool | None, typer.Option(help="May batches be published that are stored all or nothing?")
    ],
    "allow_rollup": Annotated[
        bool | None, typer.Option(help="May a message have those before it go, by Nats-Rollup?")
    ],
    "allow_ttl": Annotated[
        bool | None,
        typer.Option(
            "--allow-msg-ttl/--no-allow-msg-ttl",
            help="May a message say by Nats-TTL how long it stays?",
        ),
    ],
    "encrypted": Annotated[
        bool | None,
        typer.Option(help="Is what is stored from now on to be encrypted, by the nodes' key?"),
    ],
    "readonly": Annotated[
        bool | None,
        typer.Option(
            "--read-only/--no-read-only",
            help="Take no records? Retention, compaction and purges go on.",
        ),
    ],
    "subject_transform": Annotated[
        str | None,
        typer.Option(metavar="'SRC -> DEST'", help="Under which subjects messages are stored."),
    ],
    "republish": Annotated[
        str | None,
        typer.Option(
            metavar="'SRC -> DEST'",
            help="Where committed messages are published again; 'SRC -> DEST headers-only' too.",
        ),
    ],
    "description": Annotated[str | None, typer.Option(help="Text that is shown with the stream.")],
}
"""By the name of the setting in ``StreamConfig``; but ``subject``, whose values are its subjects.
One that is not given stays as it is, or as the node has it.
"""


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command these options. It is called with those given, by their names, as
    ``settings``.
    """

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        named = {name: arguments.pop(name, None) for name in OPTIONS}
        given = {name: value for name, value in named.items() if value is not None}
        if "subject" in given:
            given["subjects"] = tuple(given.pop("subject"))
        command(settings=given, **arguments)

    signature = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    stream, *others = (
        it.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[it.name])
        for it in signature.parameters.values()
        if it.name != "settings"
    )
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in OPTIONS.items()
    ]
    run.__annotations__ = {
        name: kind for name, kind in hints.items() if name != "settings"
    } | OPTIONS
    del run.__wrapped__  # its hints would be taken for those of ``run``
    run.__signature__ = signature.replace(parameters=[stream, *options, *others])  # type: ignore[attr-defined]
    return run
