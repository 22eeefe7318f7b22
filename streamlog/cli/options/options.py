"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

NATS_URL = "nats://127.0.0.1:4222"
DOMAIN = "streamlog"
SERVERS = "127.0.0.1:9092"

NatsUrl = Annotated[
    str,
    typer.Option(
        "--nats",
        envvar="NATS_URL",
        help="Where NATS is. For login and TLS: NATS_USER, NATS_PASSWORD, NATS_TOKEN, NATS_NKEY,"
        " NATS_CA, NATS_CERT, NATS_KEY.",
    ),
]
Credentials = Annotated[
    str | None, typer.Option("--creds", envvar="NATS_CREDS", help="A NATS credentials file.")
]
Domain = Annotated[str, typer.Option("--domain", help="The management API's domain.")]
Servers = Annotated[
    str,
    typer.Option(
        "--servers",
        envvar="STREAMLOG_CLIENT_SERVERS",
        help="The socket API of any node: host:port, several by commas. Where it is left out and"
        " `streamlog dev` runs: all of its nodes.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is done.")]
Timeout = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="With --wait: not longer; what began goes on."),
]
Backup = Annotated[Path, typer.Argument(metavar="BACKUP", help="The backup's folder.")]
NodeNumber = Annotated[int, typer.Argument(min=1, metavar="NODE", help="The node's id.")]
StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")]
PartitionNumber = Annotated[
    int, typer.Argument(min=0, metavar="PARTITION", help="Which one, from 0.")
]

# Settings of a stream; what is not given stays as it is, or as the node has it.

_PARTITION = "For each partition; -1: no limit."

Subjects = Annotated[
    list[str] | None,
    typer.Option("--subject", help="A NATS subject to store; may be repeated. Default: the name."),
]
Partitions = Annotated[
    int | None,
    typer.Option(min=1, help="Partition i > 0 takes SUBJECT.i, if --partition-by says no other."),
]
PartitionBy = Annotated[
    str | None,
    typer.Option(
        help="subject; key: by the hash of Streamlog-Key; tokens:2,3: of tokens of the subject."
    ),
]
Group = Annotated[
    str | None,
    typer.Option(help="Share the subject's messages with the other streams of this group."),
]
Replicas = Annotated[int | None, typer.Option(min=1, help="Copies of each partition.")]
RetentionBytes = Annotated[int | None, typer.Option(help=_PARTITION)]
RetentionMs = Annotated[int | None, typer.Option(help=_PARTITION)]
RetentionMessages = Annotated[int | None, typer.Option(help=_PARTITION)]
MessageBytesMax = Annotated[int | None, typer.Option(help="-1: as the node has it.")]
DuplicateWindowMs = Annotated[int | None, typer.Option(help="How long a Nats-Msg-Id is known.")]
Sync = Annotated[str | None, typer.Option(help="commit, interval or os: when to fdatasync.")]
Compression = Annotated[str | None, typer.Option(help="none, gzip, snappy, lz4 or zstd.")]
SegmentBytes = Annotated[int | None, typer.Option(help="When to begin a new file.")]
SegmentAgeMs = Annotated[int | None, typer.Option(help="When to begin a new file.")]
AutoPauseMs = Annotated[
    int | None,
    typer.Option(min=0, help="Close the files after so long without a record; 0: never."),
]
CleanupPolicy = Annotated[
    str | None,
    typer.Option(help="delete: retention; compact: the last record of each key; compact,delete."),
]
DeleteRetentionMs = Annotated[
    int | None, typer.Option(help="How long a tombstone stays once compaction has passed it.")
]
MinCompactionLagMs = Annotated[int | None, typer.Option(help="Younger records are not compacted.")]
MaxCompactionLagMs = Annotated[
    int | None, typer.Option(help="Older ones are, however few. -1: no.")
]
MinCleanableDirtyRatio = Annotated[
    float | None, typer.Option(help="The share not compacted yet, from which on it is: 0 to 1.")
]
MinIsr = Annotated[
    int | None,
    typer.Option(
        min=1, help="Fewer in sync, and acks=all is refused. Default: a majority of the replicas."
    ),
]
UncleanElection = Annotated[
    bool | None,
    typer.Option(help="May a replica that lacks records lead, if no other is alive?"),
]
Acks = Annotated[str | None, typer.Option(help="all, leader or none: when to acknowledge.")]
MaxMessagesPerSubject = Annotated[
    int | None, typer.Option(help="Keep the newest so many messages of each subject; -1: all.")
]
AllowAtomic = Annotated[
    bool | None, typer.Option(help="May batches be published that are stored all or nothing?")
]
AllowTtl = Annotated[
    bool | None, typer.Option(help="May a message say by Nats-TTL how long it stays?")
]
AllowRollup = Annotated[
    bool | None, typer.Option(help="May a message have those before it go, by Nats-Rollup?")
]
Encrypted = Annotated[
    bool | None,
    typer.Option(help="Is what is stored from now on to be encrypted, by the nodes' key?"),
]
SubjectTransform = Annotated[
    str | None,
    typer.Option(metavar="'SRC -> DEST'", help="Under which subjects messages are stored."),
]
Republish = Annotated[
    str | None,
    typer.Option(
        metavar="'SRC -> DEST'",
        help="Where committed messages are published again; 'SRC -> DEST headers-only' too.",
    ),
]
Description = Annotated[str | None, typer.Option(help="For whoever looks.")]
