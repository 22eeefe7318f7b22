"""What a stream is set to: the one table of a stream's settings. Pure.

A field of ``StreamConfig`` is a row: its name, type, range and default, and a ``Setting`` with what
JetStream and Kafka call it, its option on the command line, and its meaning. Whatever else lists the
settings is made of these rows. Rules about several settings are the validators of the class.

``-1`` stands for "no limit", ``None`` for "as the node is set". Retention limits hold for each
partition, as Kafka's do. A configuration is made whole: defaults that depend on other
settings (the subject, the duplicate window) are filled in, so that equal ones compare equal.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from streamlog.config import KIB, MIB, SyncPolicy
from streamlog.errors import InvalidStreamConfig, InvalidStreamName, InvalidSubject
from streamlog.metadata.stream.consumer_limits import ConsumerLimits, canonical
from streamlog.metadata.stream.inert_configs import checked
from streamlog.metadata.stream.republish import check_republish
from streamlog.metadata.stream.setting_type import (
    CLUSTER,
    COMPRESSION,
    CONSUMER_LIMITS,
    INT64_MAX,
    LOCAL_DURATION,
    LOCAL_SIZE,
    NO_LIMIT,
    ORIGIN,
    ORIGINS,
    PERSIST_MODE,
    POLICIES,
    REPUBLISH,
    SAME,
    SIZE32,
    TABLE_SCHEMA,
    TRANSFORM,
    Setting,
    policies_in_order,
)
from streamlog.metadata.stream.stream_origin import (
    TEXT_BYTES_MAX,
    check_counts,
    check_origin,
    origin_of,
    origins_of,
)
from streamlog.metadata.stream.subject_transform import SubjectTransform
from streamlog.metadata.stream.subjects import (
    check_queue_group,
    check_subjects,
    hears,
    partition_subject,
)
from streamlog.record.schema.table_schema import TableSchema

NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 10_000
SUBSCRIPTIONS_MAX = 20_000
"""Subjects of all partitions of one stream. Its leaders subscribe to each of them, and the rights
to each are checked.
"""
DESCRIPTION_BYTES_MAX = 4 * KIB
METADATA_BYTES_MAX = 128 * KIB
DUPLICATE_WINDOW_MS = 120_000
FIRST_SEQUENCE_MAX: Final = 2**40
"""A mirror has a segment with a gap batch for each 2**31 offsets that are missing at its beginning: 512 of them take
it less than a second, and 8,192 would take most of a minute.
"""

CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd", "uncompressed"]
Acks = Literal["all", "leader", "none"]
TimestampType = Literal["CreateTime", "LogAppendTime"]
Retention = Literal["limits", "interest", "workqueue"]
Storage = Literal["file", "memory"]
PersistMode = Literal["default", "async"]

OFFSETS_STREAM: Final = "__consumer_offsets"
"""Of consumer groups; under the name that Kafka gives it."""
ACTIVITY_STREAM: Final = "__activity"
"""Of what has become of the metadata; under the name that Liftbridge gives it."""
CONSUMERS_STREAM: Final = "__consumer_state"
"""Of JetStream consumers: their configurations and how far each has come."""
TRANSACTIONS_STREAM: Final = "__transaction_state"
"""Of transactional ids; under the name that Kafka gives it."""
INTERNAL_STREAMS: Final = frozenset(
    {OFFSETS_STREAM, ACTIVITY_STREAM, CONSUMERS_STREAM, TRANSACTIONS_STREAM}
)
"""Made and written by the nodes themselves; they listen to no subjects."""

_LIMITS: Final = (
    "retention_bytes", "retention_messages", "message_bytes_max", "max_messages_per_subject",
    "max_consumers",
)  # fmt: skip
_TOKENS: Final = re.compile(r"tokens:[0-9]{1,3}(,[0-9]{1,3})*")
TOKENS_MAX: Final = 100
"""The highest number of a token of a subject by which messages are spread."""


def _tokens_of(partition_by: str) -> tuple[int, ...]:
    """Raises ValueError."""
    _, colon, numbers = partition_by.partition(":")
    return tuple(int(number) for number in numbers.split(",")) if colon else ()


def _checked_partitioning(value: Any) -> Any:
    """``subject``, ``key`` or ``tokens:1,2``; blanks are left out."""
    if value in ("subject", "key"):
        return value
    if not isinstance(value, str) or not _TOKENS.fullmatch(tight := value.replace(" ", "")):
        raise ValueError("subject, key or tokens:N,M with tokens of the subject, the first is 1")
    tokens = _tokens_of(tight)
    if not all(1 <= token <= TOKENS_MAX for token in tokens) or len(set(tokens)) < len(tokens):
        raise ValueError(f"tokens: different numbers from 1 to {TOKENS_MAX}")
    return "tokens:" + ",".join(map(str, tokens))


Limit = Annotated[int, Field(ge=-1, le=INT64_MAX)]
"""-1: none."""

PartitionBy = Annotated[str, BeforeValidator(_checked_partitioning)]

CleanupPolicy = Annotated[
    Literal["delete", "compact", "compact,delete"], BeforeValidator(policies_in_order)
]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_topic_name(name: str) -> None:
    """Raise InvalidStreamName unless ``name`` can be that of a topic in Kafka; it can be a folder's then, too."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidStreamName(
            f"{name[:60]!r}: 1 to {NAME_LENGTH_MAX} of the characters A-Z a-z 0-9 . _ - are allowed,"
            " but not . and .. alone"
        )


def check_stream_name(name: str) -> None:
    """Raise InvalidStreamName unless a client may give a stream this name."""
    check_topic_name(name)
    if name.startswith("__"):
        raise InvalidStreamName(f"{name!r}: names that start with '__' are reserved")


def is_jetstream_name(name: str) -> bool:
    """JetStream's API has a place for it. A name with a dot would be several tokens of the subjects of requests,
    acknowledgements and advisories, as JetStream has no such names either.
    """
    return "." not in name


def check_collision(name: str, names: Iterable[str]) -> None:
    """Raise InvalidStreamName where one of ``names`` is the same but for dots and underscores, as Kafka does: its
    clients and tools write both as underscores in the names of metrics. Who has neither is not compared.
    """
    folded = name.replace(".", "_")
    if "_" not in folded:
        return
    for other in names:
        if other != name and len(other) == len(name) and other.replace(".", "_") == folded:
            raise InvalidStreamName(f"topic {name!r} collides with existing topic: {other!r}")


def default_subject(name: str) -> str:
    """What a stream of this name listens to unless it is told. A name with dots that is no subject, or one of inboxes,
    is written with underscores; no other stream's name is written so, see ``check_collision``.
    """
    tokens = name.split(".")
    return name if all(tokens) and tokens[0] != "_INBOX" else name.replace(".", "_")


def is_internal(name: str) -> bool:
    """Only the nodes make it, write to it or delete it; every client may read it."""
    return name in INTERNAL_STREAMS


def is_hidden(name: str) -> bool:
    """It holds what only Kafka's clients can make sense of: those of NATS are not told of it."""
    return name in (OFFSETS_STREAM, CONSUMERS_STREAM, TRANSACTIONS_STREAM)


RESTORING: Final = "_streamlog.restoring"
"""In the metadata of a stream that is being restored: the node that does it, and which restore it is."""


def check_writable_by_clients(name: str) -> None:
    """Raise InvalidStreamName for a stream that is the nodes' own."""
    if is_internal(name):
        raise InvalidStreamName(f"{name!r}: an internal stream, which only the nodes change")


def default_min_isr(replicas: int) -> int:
    """A majority: one replica may be away, and whatever is acknowledged is on two of three."""
    return replicas // 2 + 1


def default_window_ms(retention_ms: int) -> int:
    """Of duplicates: no longer than messages are kept."""
    limited = retention_ms > 0
    return min(DUPLICATE_WINDOW_MS, max(retention_ms, 100)) if limited else DUPLICATE_WINDOW_MS


class StreamConfig(BaseModel):
    """One stream's settings; ``settings_translation`` translates them to what others call them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    # fmt: off
    subjects: Annotated[tuple[str, ...], Setting(
        "NATS subjects whose messages are stored; wildcards are allowed. Partition 0 takes the"
        " subject itself, partition i takes <subject>.<i>, unless {partition_by} says"
        " otherwise.",
        jetstream="subjects", omitempty=True, kafka="subject", option="--subject", is_list=True,
        default="the stream's name", see="streams.md#names",
    )] = ()
    partitions: Annotated[int, Field(ge=1, le=PARTITIONS_MAX), Setting(
        "Number of partitions. It can grow later.",
        kafka=None,
    )] = 1
    partition_by: Annotated[PartitionBy, Setting(
        "Which partition a NATS message goes to. subject: partition i takes <subject>.<i>. key:"
        " by the hash of its Streamlog-Key, as Kafka's default partitioner does, or of its"
        " subject if it has no key. tokens:N,M: by the hash of these tokens of its subject; the"
        " first is 1.",
        see="subjects.md",
    )] = "subject"
    group: Annotated[str, Setting(
        "NATS queue group. Streams of one group share the messages of a subject.",
        default="none",
    )] = ""
    replicas: Annotated[int, Field(ge=1, le=5), Setting(
        "Number of replicas of each partition.",
        jetstream="num_replicas", kafka=None,
    )] = 1
    first_sequence: Annotated[int, Field(
        ge=0, le=FIRST_SEQUENCE_MAX, exclude_if=(0).__eq__
    ), Setting(
        "Sequence of the first message: each partition begins at the offset that is one less. 0 and 1:"
        " at offset 0. It is set at the creation, and not changed afterwards.",
        jetstream="first_seq", omitempty=True, see="streams.md#a-first-sequence", level=3,
    )] = 0
    retention: Annotated[Retention, Field(exclude_if="limits".__eq__), Setting(
        "What removes messages besides the limits. limits: nothing. interest: a message goes when"
        " all JetStream consumers that want it have acknowledged it. workqueue: a message goes"
        " when its consumer has acknowledged it; no two consumers may want the same one.",
        jetstream="retention", see="consumers.md#work-queues-and-retention-by-interest", level=3,
    )] = "limits"
    retention_messages: Annotated[Limit, Setting(
        "Maximum number of records that each partition keeps. The oldest go first.",
        jetstream="max_msgs", option="--max-msgs", see="streams.md#when-a-limit-is-reached",
    )] = NO_LIMIT
    max_messages_per_subject: Annotated[Limit, Setting(
        "Maximum number of messages of each subject that a partition keeps: the newest, or with"
        " {discard_new_per_subject} the existing ones.",
        jetstream="max_msgs_per_subject", option="--max-msgs-per-subject",
        see="subjects.md#the-newest-of-each-subject",
    )] = NO_LIMIT
    retention_bytes: Annotated[Limit, Setting(
        "Size that each partition keeps, and at most a batch more. The oldest batches go first.",
        jetstream="max_bytes", kafka="retention.bytes", option="--max-bytes",
        see="streams.md#when-a-limit-is-reached",
    )] = NO_LIMIT
    retention_ms: Annotated[Limit, Setting(
        "Time that records are kept, at least 100 ms. They go within a hundredth of it.",
        jetstream="max_age", kafka="retention.ms", option="--max-age",
        see="streams.md#when-a-limit-is-reached",
    )] = NO_LIMIT
    message_bytes_max: Annotated[int, Field(ge=-1, le=64 * MIB), Setting(
        "Maximum size of a message.",
        jetstream="max_msg_size", kafka="max.message.bytes", option="--max-msg-size", form=SIZE32,
        minus_one="as the node is set", node_setting="message_bytes_max",
    )] = NO_LIMIT
    max_consumers: Annotated[Limit, Field(exclude_if=NO_LIMIT.__eq__), Setting(
        "Maximum number of JetStream consumers of the stream.",
        jetstream="max_consumers", see="consumers.md#limits-of-a-stream", level=3,
    )] = NO_LIMIT
    consumer_limits: Annotated[str, BeforeValidator(canonical), Field(exclude_if="".__eq__), Setting(
        "Limits of each JetStream consumer of the stream, which are also what a consumer has that asks"
        " for nothing: inactive_threshold=10s,max_ack_pending=100, or one of the two.",
        jetstream="consumer_limits", form=CONSUMER_LIMITS, default="none",
        see="consumers.md#limits-of-a-stream", level=3,
    )] = ""
    duplicate_window_ms: Annotated[int, Field(ge=100, le=INT64_MAX), Setting(
        "Time that a Nats-Msg-Id is remembered, so that a repeated message is stored once. It"
        " is never longer than {retention_ms}, and becomes shorter with it.",
        jetstream="duplicate_window", omitempty=True, option="--dupe-window",
        default="two minutes, or {retention_ms} if that is shorter",
    )] = DUPLICATE_WINDOW_MS
    compression: Annotated[CompressionName, Setting(
        "Compression on the disk of batches of NATS messages. Those of Kafka producers stay as they were"
        " sent, whatever it is. uncompressed, which Kafka has, is the same as none.",
        jetstream="compression", kafka="compression.type", form=COMPRESSION,
    )] = "none"
    storage: Annotated[Storage, Field(exclude_if="file".__eq__), Setting(
        "What is promised of records if all replicas lose their power at once. file: what {sync} says."
        " memory: nothing, as of a stream in memory. It is stored in files, too, and never waits for the"
        " disk; {sync} can be nothing but os. It is not changed afterwards.",
        jetstream="storage", see="streams.md#streams-in-memory", level=3,
    )] = "file"
    persist_mode: Annotated[PersistMode, Field(exclude_if="default".__eq__), Setting(
        "Whether an ack waits for the disk. default: as {sync} says. async: no, as with {sync} os, which must not be"
        " set to anything else; for a stream on file storage with one replica and without {allow_atomic}. It is not"
        " changed afterwards.",
        jetstream="persist_mode", omitempty=True, form=PERSIST_MODE,
        see="streams.md#acks-that-do-not-wait-for-the-disk", level=3,
    )] = "default"
    sync: Annotated[SyncPolicy | None, Setting(
        "When records are synced to the disk. commit: before the ack; interval: every"
        " log.sync_interval_ms of the node; os: when the operating system decides.",
        node_setting="sync", see="durability.md",
    )] = None
    segment_bytes: Annotated[Annotated[int, Field(ge=4 * KIB, le=2**31 - 1)] | None, Setting(
        "Size at which a segment is closed and a new one begins.",
        kafka="segment.bytes", node_setting="segment_bytes",
    )] = None
    segment_age_ms: Annotated[Annotated[int, Field(ge=100, le=INT64_MAX)] | None, Setting(
        "Age at which a segment is closed and a new one begins.",
        kafka="segment.ms", node_setting="segment_age_ms",
    )] = None
    index_interval_bytes: Annotated[Annotated[int, Field(ge=0, le=2**31 - 1)] | None, Setting(
        "Approximate number of bytes between two entries of a segment's indexes.",
        kafka="index.interval.bytes", node_setting="index_interval_bytes",
    )] = None
    auto_pause_ms: Annotated[Annotated[int, Field(ge=0, le=INT64_MAX)] | None, Setting(
        "Time without writes after which a partition closes its files until the next write; 0:"
        " never.",
        node_setting="idle_close_ms", see="streams.md#auto-paused-when-idle",
    )] = None
    min_isr: Annotated[int, Field(ge=1, le=2**31 - 1), Setting(
        "Minimum number of in-sync replicas for a write with acks=all; with fewer it is"
        " refused. With more than the replicas every such write is, as in Kafka.",
        kafka="min.insync.replicas", default="a majority of the replicas",
    )] = 1
    unclean_election: Annotated[bool, Setting(
        "Elect a replica that lacks committed records if no other is alive: these records are"
        " lost.",
        kafka="unclean.leader.election.enable", see="runbooks/no-leader.md",
    )] = False
    acks: Annotated[Acks, Setting(
        "Which replicas must have a message before its publisher gets the ack.",
        see="durability.md",
    )] = "all"
    timestamp_type: Annotated[TimestampType, Setting(
        "Timestamps of records from Kafka producers: the producer's (CreateTime), or the"
        " leader's (LogAppendTime), as those of messages from NATS are.",
        kafka="message.timestamp.type",
    )] = "CreateTime"
    cleanup_policy: Annotated[CleanupPolicy, Setting(
        "What happens to old records. delete: retention limits remove them. compact: the last"
        " record of each key stays, and every record must have a key. Both may be set, with a"
        " comma between them.",
        kafka="cleanup.policy", form=POLICIES, is_list=True, see="compaction.md",
    )] = "delete"
    delete_retention_ms: Annotated[int, Field(ge=0, le=INT64_MAX), Setting(
        "Time that a tombstone, a record without a value, stays after compaction.",
        kafka="delete.retention.ms", see="compaction.md",
    )] = 86_400_000
    min_compaction_lag_ms: Annotated[int, Field(ge=0, le=INT64_MAX), Setting(
        "Minimum age of a record that compaction may remove. The duplicate window is the"
        " minimum in any case.",
        kafka="min.compaction.lag.ms", see="compaction.md",
    )] = 0
    max_compaction_lag_ms: Annotated[Limit, Setting(
        "Age at which records are compacted, whatever their share of the log is.",
        kafka="max.compaction.lag.ms", see="compaction.md",
    )] = NO_LIMIT
    min_cleanable_dirty_ratio: Annotated[float, Field(ge=0, le=1), Setting(
        "Share of the log without compaction at which it is compacted.",
        kafka="min.cleanable.dirty.ratio", see="compaction.md",
    )] = 0.5
    discard: Annotated[Literal["old", "new"], Setting(
        "At a limit on bytes or messages, remove old records, or refuse new ones.",
        jetstream="discard", see="subjects.md#refusing-what-is-new",
    )] = "old"
    discard_new_per_subject: Annotated[bool, Setting(
        "Refuse new messages of a subject that has {max_messages_per_subject} messages.",
        jetstream="discard_new_per_subject", omitempty=True,
        option="--discard-per-subject/--no-discard-per-subject",
        see="subjects.md#refusing-what-is-new",
    )] = False
    no_ack: Annotated[bool, Setting(
        "Send no acks, even if the publisher asks for one with a reply subject.",
        jetstream="no_ack", omitempty=True, option="--no-ack/--ack",
    )] = False
    subject_transform: Annotated[str, Setting(
        "Subjects under which messages are stored: SRC -> DEST.",
        jetstream="subject_transform", omitempty=True, form=TRANSFORM, default="none",
        see="streams.md#other-subjects-on-the-way-in",
    )] = ""
    republish: Annotated[str, Setting(
        "Subjects under which committed messages are published again: SRC -> DEST, or SRC ->"
        " DEST headers-only for their headers alone.",
        jetstream="republish", omitempty=True, form=REPUBLISH, default="none",
        see="streams.md#published-again",
    )] = ""
    mirror: Annotated[str, Field(exclude_if="".__eq__), Setting(
        "The stream whose messages this one copies, under the sequences that they have there. A"
        " mirror has no subjects of its own, and takes no other messages.",
        jetstream="mirror", omitempty=True, form=ORIGIN, default="none", see="mirrors.md",
        level=3,
    )] = ""
    sources: Annotated[str, Field(exclude_if="".__eq__), Setting(
        "Streams whose messages are appended to this one, beside those of its own subjects.",
        jetstream="sources", omitempty=True, form=ORIGINS, default="none", see="mirrors.md",
        level=3,
    )] = ""
    mirror_direct: Annotated[bool, Field(exclude_if=False.__eq__), Setting(
        "Answer direct gets for the stream that is mirrored, too, where no stream of this cluster"
        " has its name.",
        jetstream="mirror_direct", see="mirrors.md#key-value-buckets", level=3,
    )] = False
    sealed: Annotated[bool, Setting(
        "Add and remove no records any more. It cannot be set at the creation, nor turned off.",
        jetstream="sealed", option=None, see="streams.md#sealed-read-only-paused",
    )] = False
    deny_purge: Annotated[bool, Setting(
        "Refuse purges over NATS. It cannot be turned off.",
        jetstream="deny_purge",
    )] = False
    deny_delete: Annotated[bool, Setting(
        "Refuse to erase single messages over NATS. It cannot be turned off.",
        jetstream="deny_delete",
    )] = False
    allow_direct: Annotated[bool, Setting(
        "Let all in-sync replicas answer direct gets over NATS, which may lack the last"
        " messages; otherwise only the leader does.",
        jetstream="allow_direct",
    )] = False
    placement_cluster: Annotated[str, Setting(
        "Name of the cluster in which the stream must be; only this cluster can be named.",
        jetstream="placement", omitempty=True, form=CLUSTER, default="any",
    )] = ""
    readonly: Annotated[bool, Setting(
        "Accept no records. Retention, compaction and purges continue.",
        option="--read-only/--no-read-only", see="streams.md#sealed-read-only-paused",
    )] = False
    paused: Annotated[bool, Setting(
        "Accept no records for now.",
        option=None, see="streams.md#sealed-read-only-paused",
    )] = False
    allow_atomic: Annotated[bool, Setting(
        "Let NATS publishers store batches of messages together or not at all.",
        jetstream="allow_atomic", omitempty=True, see="streams.md#batches-all-or-nothing",
    )] = False
    allow_ttl: Annotated[bool, Setting(
        "Let NATS publishers give a message a lifetime, by Nats-TTL. It cannot be turned off.",
        jetstream="allow_msg_ttl", option="--allow-msg-ttl/--no-allow-msg-ttl",
        see="streams.md#messages-that-go-by-themselves",
    )] = False
    allow_rollup: Annotated[bool, Setting(
        "Let NATS publishers send messages that remove those before them, by Nats-Rollup.",
        jetstream="allow_rollup_hdrs", see="subjects.md#taking-the-place-of-what-was-before",
    )] = False
    subject_delete_marker_ttl_ms: Annotated[Limit, Field(exclude_if=NO_LIMIT.__eq__), Setting(
        "When the last message of a subject goes by {retention_ms} or by its Nats-TTL, store a marker in its"
        " place, which stays so long, at least 1 s. Messages then go one by one when they are too old, not"
        " with their segment. It brings {allow_ttl} and {allow_rollup} along.",
        jetstream="subject_delete_marker_ttl", omitempty=True, minus_one="no markers",
        see="streams.md#markers-for-subjects-that-end", level=3,
    )] = NO_LIMIT
    allow_counter: Annotated[bool, Field(exclude_if=False.__eq__), Setting(
        "Add up what NATS publishers send by Nats-Incr: each message is stored with the sum of its"
        " subject. It is set at the creation.",
        jetstream="allow_msg_counter", omitempty=True, see="streams.md#counters", level=3,
    )] = False
    allow_schedules: Annotated[bool, Field(exclude_if=False.__eq__), Setting(
        "Let NATS publishers send messages that are published later, or again and again, by"
        " Nats-Schedule. It needs allow_rollup, and cannot be turned off.",
        jetstream="allow_msg_schedules", omitempty=True,
        option="--allow-msg-schedules/--no-allow-msg-schedules",
        see="publishing.md#schedules", level=3,
    )] = False
    allow_batched: Annotated[bool, Field(exclude_if=False.__eq__), Setting(
        "Let NATS publishers send batches that are stored message by message and acknowledged together.",
        jetstream="allow_batched", omitempty=True, see="publishing.md#fast-batches", level=3,
    )] = False
    encrypted: Annotated[bool, Setting(
        "Encrypt on the disk what is stored from now on, by the nodes' key.",
        see="encryption.md",
    )] = False
    tiered: Annotated[bool, Field(exclude_if=False.__eq__), Setting(
        "Copy closed segments to the object store of the nodes' [tier] section, and read them from there"
        " once {local_retention_ms} or {local_retention_bytes} has removed them here. It cannot be turned off.",
        kafka="remote.storage.enable", see="tiered-storage.md", level=3,
    )] = False
    local_retention_ms: Annotated[int, Field(ge=-2, le=INT64_MAX, exclude_if=SAME.__eq__), Setting(
        "Of a stream with {tiered}: time that records which are in the object store stay on the disk of the"
        " replicas, too. -2: as {retention_ms} says. -1: no limit.",
        kafka="local.retention.ms", form=LOCAL_DURATION, see="tiered-storage.md", level=3,
    )] = SAME
    local_retention_bytes: Annotated[int, Field(ge=-2, le=INT64_MAX, exclude_if=SAME.__eq__), Setting(
        "Of a stream with {tiered}: size that each replica of a partition keeps on its disk, and at most a"
        " segment more, if the rest is in the object store. -2: as {retention_bytes} says. -1: no limit.",
        kafka="local.retention.bytes", form=LOCAL_SIZE, see="tiered-storage.md", level=3,
    )] = SAME
    table_schema: Annotated[str, Field(exclude_if="".__eq__), Setting(
        "The schema of the values, by which streamlog lake run makes the columns of a table: json SCHEMA (JSON"
        " Schema), avro SCHEMA, or protobuf MESSAGE DESCRIPTORS (in Base64). What is published is not checked by it.",
        form=TABLE_SCHEMA, default="none", see="lake.md#columns", level=3,
    )] = ""
    description: Annotated[str, Setting(
        "Text that is shown with the stream.",
        jetstream="description", omitempty=True, default="none",
    )] = ""
    # fmt: on
    metadata: dict[str, str] = Field(default_factory=dict)
    """Keys of others, kept as they came."""
    inert_configs: Annotated[dict[str, str], AfterValidator(checked)] = Field(
        default_factory=dict, exclude_if=({}).__eq__
    )
    """Topic configs of Kafka's that have no effect here, as they were set."""

    @property
    def is_restoring(self) -> bool:
        """It is not whole yet: no client sees it."""
        return RESTORING in self.metadata

    @property
    def is_spread(self) -> bool:
        """Every leader hears all messages, and takes those of its partitions."""
        return self.partitions > 1 and self.partition_by != "subject"

    @property
    def partition_tokens(self) -> tuple[int, ...]:
        """The tokens of the subject by which messages are spread, from 1; empty: by key."""
        return _tokens_of(self.partition_by)

    def subjects_of(self, partition: int) -> list[str]:
        """What the partition's messages come by."""
        if self.is_spread:
            return list(self.subjects)
        return [partition_subject(subject, partition) for subject in self.subjects]

    def hears(self, pattern: str) -> bool:
        """Whether some partition stores messages of a subject that ``pattern`` matches."""
        return hears(self.subjects, pattern, partitions=1 if self.is_spread else self.partitions)

    def sync_by(self, node_sync: SyncPolicy) -> SyncPolicy:
        """When its records are synced, on a node with this ``log.sync``."""
        waits = self.storage == "file" and self.persist_mode == "default"
        return self.sync or node_sync if waits else "os"

    @property
    def first_offset(self) -> int:
        """No partition has records below."""
        return max(0, self.first_sequence - 1)

    @property
    def is_fed(self) -> bool:
        """It takes messages from other streams."""
        return bool(self.mirror or self.sources)

    @property
    def is_compacted(self) -> bool:
        """Each record must have a key."""
        return "compact" in self.cleanup_policy

    @property
    def limits_of_consumers(self) -> ConsumerLimits:
        return ConsumerLimits.parse(self.consumer_limits)

    @property
    def is_retained(self) -> bool:
        """The retention limits hold."""
        return "delete" in self.cleanup_policy and not self.sealed

    @property
    def local_limit_ms(self) -> int:
        """Of what the disk of a replica keeps of a tiered stream."""
        limit = self.local_retention_ms
        return self.retention_ms if limit == SAME else limit

    @property
    def local_limit_bytes(self) -> int:
        """As ``local_limit_ms``."""
        limit = self.local_retention_bytes
        return self.retention_bytes if limit == SAME else limit

    @property
    def leaves_markers(self) -> bool:
        """The last message of a subject leaves a marker when it goes by its age or its lifetime."""
        return self.subject_delete_marker_ttl_ms != NO_LIMIT and not self.sealed

    @property
    def is_consumed(self) -> bool:
        """Acknowledgements by JetStream consumers remove messages."""
        return self.retention != "limits" and not self.sealed

    @property
    def is_trimmed(self) -> bool:
        """Single messages go by rules."""
        by_publishers = self.allow_rollup or self.allow_ttl
        return self.max_messages_per_subject > 0 or by_publishers or self.is_consumed

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Make one; whatever is wrong is an InvalidRequest of one line that names the setting."""
        try:
            return cls(**settings)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"]) or "config"
            if first["type"] == "extra_forbidden":
                raise InvalidStreamConfig(f"{key}: no such setting") from None
            raise InvalidStreamConfig(
                f"{key}: {first.get('input')!r} is not supported ({first['msg']})"
            ) from None

    def changed(self, **settings: Any) -> Self:
        """The same with some settings replaced, checked like a new one.

        A ``min_isr`` that was the default for the replicas is so for another number of them.
        """
        known = self.model_dump()
        if self.min_isr == default_min_isr(self.replicas):
            del known["min_isr"]
        return type(self).of(**{**known, **settings})

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        filled = dict(values)
        if is_internal(str(filled.get("name"))) or filled.get("mirror") or filled.get("sources"):
            filled.setdefault("subjects", ())
        elif not filled.get("subjects") and isinstance(filled.get("name"), str):
            filled["subjects"] = (default_subject(filled["name"]),)
        if filled.get("subject_delete_marker_ttl_ms", NO_LIMIT) != NO_LIMIT:
            filled |= {"allow_ttl": True, "allow_rollup": True}
        if filled.get("allow_schedules") is True:
            filled.setdefault("allow_rollup", True)
        if filled.get("sealed") is True:
            filled |= {"retention_ms": NO_LIMIT, "deny_purge": True, "deny_delete": True}
            filled["allow_rollup"] = False
        if filled.get("min_isr") is None:
            replicas = filled.get("replicas", 1)
            filled["min_isr"] = default_min_isr(replicas) if isinstance(replicas, int) else 1
        if filled.get("duplicate_window_ms") is None:
            retention_ms = filled.get("retention_ms", NO_LIMIT)
            filled["duplicate_window_ms"] = default_window_ms(
                retention_ms if isinstance(retention_ms, int) else NO_LIMIT
            )
        return filled

    @model_validator(mode="after")
    def _check(self) -> Self:
        if is_internal(self.name):
            self._check_internal()
        else:
            check_stream_name(self.name)
            self._check_name_for_nats()
            each = 1 if self.is_spread else self.partitions
            if len(self.subjects) * each > SUBSCRIPTIONS_MAX:
                raise InvalidStreamConfig(
                    f"subjects: {len(self.subjects)} subjects in {each} partitions are more than"
                    f" {SUBSCRIPTIONS_MAX} subscriptions"
                )
            self._check_origins()
            if self.subjects or not self.is_fed:
                check_subjects(self.subjects, partitions=each, answers=not self.no_ack)
            self._check_group()
        self._check_other_subjects()
        self._check_limits()
        self._check_discard()
        self._check_markers()
        self._check_counter()
        self._check_schedules()
        self._check_storage()
        self._check_tiered()
        self._check_table_schema()
        if self.retention != "limits" and (self.is_compacted or is_internal(self.name)):
            raise InvalidStreamConfig(
                f"retention: {self.retention} is not for a stream that is compacted or internal"
            )
        if len(self.description.encode()) > DESCRIPTION_BYTES_MAX:
            raise InvalidStreamConfig(f"description: at most {DESCRIPTION_BYTES_MAX} bytes")
        metadata_bytes = sum(len(k.encode()) + len(v.encode()) for k, v in self.metadata.items())
        if metadata_bytes > METADATA_BYTES_MAX:
            raise InvalidStreamConfig(f"metadata: at most {METADATA_BYTES_MAX} bytes")
        return self

    def _check_name_for_nats(self) -> None:
        """What JetStream consumers and mirrors do goes by subjects with the stream's name as one token."""
        if is_jetstream_name(self.name):
            return
        for key in ("mirror", "sources"):
            if getattr(self, key):
                raise InvalidStreamConfig(f"{key}: not for a stream with a dot in its name")
        if self.retention != "limits":
            raise InvalidStreamConfig(
                f"retention: {self.retention} is not for a stream with a dot in its name, which JetStream"
                " consumers cannot read"
            )

    def _check_origins(self) -> None:
        """A mirror's offsets are its origin's sequences: nothing else may take one."""
        if len(self.mirror) > TEXT_BYTES_MAX or len(self.sources) > TEXT_BYTES_MAX:
            raise InvalidStreamConfig(f"sources: at most {TEXT_BYTES_MAX} bytes")
        try:
            mirror = origin_of(self.mirror) if self.mirror else None
            sources = origins_of(self.sources)
        except ValueError as error:
            raise InvalidStreamConfig(f"mirror, sources: {error}") from None
        check_counts([len(it.transforms) for it in (mirror, *sources) if it is not None])
        if mirror is None:
            if self.mirror_direct:
                raise InvalidStreamConfig("stream has no mirror but does have mirror direct")
        else:
            self._check_mirror()
            check_origin(mirror, "mirror")
            if mirror.api and self.partitions > 1:
                raise InvalidStreamConfig(
                    "mirror: a stream of another cluster has sequences of one partition alone;"
                    " give the mirror one partition"
                )
            if not mirror.api and mirror.name == self.name:
                raise InvalidStreamConfig("detected cycle")
        if sources and self.partitions > 1 and not self.is_spread:
            raise InvalidStreamConfig(
                "sources: what they bring must be spread over the partitions; set partition_by"
                " to key or tokens"
            )
        if self.partitions > 1 and any(it.consumer for it in (mirror, *sources) if it is not None):
            raise InvalidStreamConfig(
                "consumer: it would be read by each partition; a stream that is fed by a consumer"
                " of its origin has one"
            )
        names, consumers = set[str](), set[tuple[str, str, str]]()
        for it in sources:
            check_origin(it, "source")
            if it.consumer and (it.name, it.api, it.consumer) in consumers:
                raise InvalidStreamConfig("duplicate stream source consumer detected")
            consumers.add((it.name, it.api, it.consumer))
            if it.index_name in names:
                raise InvalidStreamConfig("duplicate source configuration detected")
            if not it.api and it.name == self.name:
                raise InvalidStreamConfig("detected cycle")
            names.add(it.index_name)

    def _check_mirror(self) -> None:
        if self.subjects:
            raise InvalidStreamConfig("stream mirrors can not contain subjects")
        if self.sources:
            raise InvalidStreamConfig("stream mirrors can not also contain other sources")
        if self.allow_atomic:
            raise InvalidStreamConfig("stream mirrors can not also use atomic publishing")
        if self.subject_delete_marker_ttl_ms != NO_LIMIT:
            raise InvalidStreamConfig("subject delete markers forbidden on mirrors")
        if self.allow_batched:
            raise InvalidStreamConfig("stream mirrors can not also use batch publishing")
        for name in ("allow_ttl", "group"):
            if getattr(self, name):
                raise InvalidStreamConfig(f"{name}: not for a mirror, which is what its origin is")
        if self.retention != "limits":
            raise InvalidStreamConfig(
                f"retention: {self.retention} is not for a mirror, whose messages go with those of its origin"
            )
        if self.discard == "new":
            raise InvalidStreamConfig("discard: new is not for a mirror, which refuses no message")
        if self.first_sequence:
            raise InvalidStreamConfig("stream mirrors can not have first sequence configured")

    def _check_group(self) -> None:
        if self.group:
            check_queue_group(self.group)
        if self.group and self.is_spread:
            raise InvalidStreamConfig(
                "group: not with several partitions and partition_by other than subject: NATS"
                " gives a message to one node of a group, which may not lead its partition"
            )

    def _check_internal(self) -> None:
        """What the nodes keep of groups they need, whatever its age; activity is a history."""
        if self.storage != "file":
            raise InvalidStreamConfig(f"storage: {self.name} is an internal stream")
        if self.persist_mode != "default":
            raise InvalidStreamConfig(f"persist_mode: {self.name} is an internal stream")
        if self.subjects:
            raise InvalidStreamConfig(f"subjects: {self.name} is an internal stream, and has none")
        if self.first_sequence:
            raise InvalidStreamConfig(f"first_sequence: {self.name} is an internal stream")
        if self.name == ACTIVITY_STREAM:
            if self.is_compacted:
                raise InvalidStreamConfig(f"cleanup_policy: {self.name} is not compacted")
            return
        for key in ("retention_bytes", "retention_messages", "retention_ms"):
            if getattr(self, key) != NO_LIMIT:
                raise InvalidStreamConfig(f"{key}: {self.name} is kept whole")

    def _check_other_subjects(self) -> None:
        if self.subject_transform:
            try:
                SubjectTransform.parse(self.subject_transform)
            except InvalidSubject as error:
                raise InvalidStreamConfig(f"subject_transform: {error}") from None
        if self.republish:
            check_republish(self.republish, self.hears)

    def _check_discard(self) -> None:
        """As JetStream says it, but for the last."""
        if self.allow_rollup and self.deny_purge:
            raise InvalidStreamConfig("roll-ups require the purge permission")
        per_subject = self.discard_new_per_subject
        if per_subject and self.discard != "new":
            raise InvalidStreamConfig(
                "discard new per subject requires discard new policy to be set"
            )
        if per_subject and self.max_messages_per_subject <= 0:
            raise InvalidStreamConfig("discard new per subject requires max msgs per subject > 0")
        if self.discard == "new" and self.is_compacted:
            raise InvalidStreamConfig("discard: new is not for a stream that is compacted")

    def _check_markers(self) -> None:
        """The first as JetStream says it. All messages of a subject must be in one log."""
        if self.subject_delete_marker_ttl_ms == NO_LIMIT:
            return
        if self.subject_delete_marker_ttl_ms < 1_000:
            raise InvalidStreamConfig("subject delete marker TTL must be at least 1 second")
        if self.is_compacted:
            raise InvalidStreamConfig(
                "cleanup_policy: compact is not for a stream with subject_delete_marker_ttl_ms: a"
                " marker has no key"
            )
        if self.is_spread:
            raise InvalidStreamConfig(
                "partition_by: a stream with subject_delete_marker_ttl_ms and several partitions has"
                " subject, so that the messages of a subject stay in one partition"
            )

    def _check_schedules(self) -> None:
        """As JetStream says it, but for what it does not have. A schedule and what it fires must be in one log."""
        if not self.allow_schedules:
            return
        for broken, told in (
            (self.mirror, "stream mirrors can not also schedule messages"),
            (self.sources, "stream source can not also schedule messages"),
            (self.allow_counter, "counter stream cannot use message schedules"),
            (self.discard == "new", "message scheduling cannot use discard new"),
            (
                not (self.allow_rollup or self.sealed),
                "message scheduling cannot be set if roll-ups are disabled",
            ),
            (
                self.is_compacted,
                "cleanup_policy: compact is not for a stream with message schedules, which go by"
                " subject",
            ),
            (
                self.partitions > 1,
                "partitions: a stream with message schedules has one, so that a schedule and what it"
                " publishes are in one log",
            ),
        ):
            if broken:
                raise InvalidStreamConfig(told)

    def _check_counter(self) -> None:
        """As JetStream says it, but for what it does not have. All messages of a subject must be in one
        log, and the newest of them must stay there.
        """
        if not self.allow_counter:
            return
        for broken, told in (
            (self.mirror, "stream mirrors can not also calculate counters"),
            (self.discard == "new", "counter stream cannot use discard new"),
            (self.allow_ttl, "counter stream cannot use message TTLs"),
            (self.retention != "limits", "counter stream can only use limits retention"),
            (
                self.is_compacted,
                "cleanup_policy: compact is not for a counter stream, whose values are by subject",
            ),
            (
                self.is_spread,
                "partition_by: a counter stream with several partitions has subject, so that a"
                " counter stays in its partition",
            ),
        ):
            if broken:
                raise InvalidStreamConfig(told)

    def _check_table_schema(self) -> None:
        if self.table_schema:
            try:
                TableSchema.parse(self.table_schema)
            except ValueError as error:
                raise InvalidStreamConfig(f"table_schema: {error}") from None

    def _check_tiered(self) -> None:
        """Segments go to the store as they are, and stay so: nothing may erase single messages of them. Local limits
        as Kafka checks them.
        """
        if not self.tiered:
            return
        for broken, told in (
            (is_internal(self.name), "an internal stream"),
            (self.is_compacted, "a stream that is compacted (cleanup_policy)"),
            (
                self.retention != "limits",
                f"a stream whose consumers empty it (retention {self.retention})",
            ),
            (self.retention_messages != NO_LIMIT, "a stream with retention_messages"),
            (self.max_messages_per_subject > 0, "a stream with max_messages_per_subject"),
            (self.allow_ttl, "a stream with allow_ttl"),
            (self.allow_rollup, "a stream with allow_rollup"),
            (self.allow_counter, "a counter stream (allow_counter)"),
            (self.allow_schedules, "a stream with allow_schedules"),
            (self.discard == "new", "a stream that refuses new messages at a limit (discard new)"),
            (self.is_fed, "a mirror, or a stream with sources"),
            (self.storage == "memory", "a stream in memory (storage)"),
        ):
            if broken:
                raise InvalidStreamConfig(
                    f"tiered: not for {told}: closed segments go to the object store as they are"
                )
        for key, limit in (("ms", self.retention_ms), ("bytes", self.retention_bytes)):
            local = getattr(self, f"local_retention_{key}")
            if limit != NO_LIMIT and (local == NO_LIMIT or local > limit):
                raise InvalidStreamConfig(
                    f"local_retention_{key}: no more than retention_{key}, which is {limit}"
                )

    def _check_storage(self) -> None:
        if self.storage == "memory" and self.sync not in (None, "os"):
            raise InvalidStreamConfig(f"sync: {self.sync} is not for a stream in memory")
        if self.persist_mode == "async":
            self._check_async()

    def _check_async(self) -> None:
        for broken, told in (
            (self.storage != "file", "only supported on file storage"),
            (self.replicas > 1, "not supported on replicated streams"),
            (self.allow_atomic, "not supported with atomic batch publish"),
            (self.sync not in (None, "os"), f"not supported with sync {self.sync}"),
        ):
            if broken:
                raise InvalidStreamConfig(f"async persist mode is {told}")

    def _check_limits(self) -> None:
        for key in _LIMITS:
            if getattr(self, key) == 0:
                raise InvalidStreamConfig(f"{key}: 0 is not a limit; -1 stands for none")
        if self.retention_ms != NO_LIMIT:
            if self.retention_ms < 100:
                raise InvalidStreamConfig("retention_ms: at least 100, or -1 for no limit")
            if self.duplicate_window_ms > self.retention_ms:
                raise InvalidStreamConfig("duplicate_window_ms: cannot be longer than retention_ms")
        if self.max_compaction_lag_ms == 0:
            raise InvalidStreamConfig("max_compaction_lag_ms: 0 is not a limit; -1 stands for none")
        if NO_LIMIT < self.max_compaction_lag_ms < self.min_compaction_lag_ms:
            raise InvalidStreamConfig(
                "max_compaction_lag_ms: cannot be less than min_compaction_lag_ms"
            )


def _as_it_is(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    return value if isinstance(value, StreamConfig) else validate(value)


CheckedConfig = Annotated[StreamConfig, WrapValidator(_as_it_is)]
"""A field of a record or a command: a configuration was checked when it was made, and does not change."""
