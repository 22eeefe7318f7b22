"""What a stream is set to. Pure.

``-1`` stands for "no limit", ``None`` for "as the node is set". Retention limits hold for each
partition, as Kafka's do. A configuration is made whole: defaults that depend on other
settings (the subject, the duplicate window) are filled in, so that equal ones compare equal.
"""

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from streamlog.config import KIB, MIB, SyncPolicy
from streamlog.errors import InvalidStreamConfig, InvalidStreamName, InvalidSubject
from streamlog.metadata.stream.republish import check_republish
from streamlog.metadata.stream.subject_transform import SubjectTransform
from streamlog.metadata.stream.subjects import (
    check_queue_group,
    check_subjects,
    hears,
    partition_subject,
)

NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 10_000
SUBSCRIPTIONS_MAX = 20_000
"""Subjects of all partitions of one stream. Its leaders subscribe to each of them, and the rights
to each are checked.
"""
DESCRIPTION_BYTES_MAX = 4 * KIB
METADATA_BYTES_MAX = 128 * KIB
DUPLICATE_WINDOW_MS = 120_000
NO_LIMIT = -1

CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Acks = Literal["all", "leader", "none"]
TimestampType = Literal["CreateTime", "LogAppendTime"]

OFFSETS_STREAM: Final = "__consumer_offsets"
"""Of consumer groups; under the name that Kafka gives it."""
ACTIVITY_STREAM: Final = "__activity"
"""Of what has become of the metadata; under the name that Liftbridge gives it."""
INTERNAL_STREAMS: Final = frozenset({OFFSETS_STREAM, ACTIVITY_STREAM})
"""Made and written by the nodes themselves; they listen to no subjects."""

_LIMITS: Final = (
    "retention_bytes", "retention_messages", "message_bytes_max", "max_messages_per_subject",
)  # fmt: skip
_INT64_MAX = 2**63 - 1
_TOKENS: Final = re.compile(r"tokens:[0-9]{1,3}(,[0-9]{1,3})*")
TOKENS_MAX: Final = 100
"""The highest number of a token of a subject by which messages are spread."""


def _policies_in_order(value: Any) -> Any:
    """A list in any order, as Kafka has it; what is none of ours is refused as it came."""
    parts = sorted({part.strip() for part in value.split(",")}) if isinstance(value, str) else []
    return ",".join(parts) if parts else value


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


PartitionBy = Annotated[str, BeforeValidator(_checked_partitioning)]

CleanupPolicy = Annotated[
    Literal["delete", "compact", "compact,delete"], BeforeValidator(_policies_in_order)
]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,249}")


def check_stream_name(name: str) -> None:
    """Raise InvalidStreamName unless ``name`` can be a NATS token, a Kafka topic and a folder."""
    if not _NAME.fullmatch(name):
        raise InvalidStreamName(
            f"{name[:60]!r}: 1 to {NAME_LENGTH_MAX} of the characters A-Z a-z 0-9 _ - are allowed"
        )
    if name.startswith("__"):
        raise InvalidStreamName(f"{name!r}: names that start with '__' are reserved")


def is_internal(name: str) -> bool:
    """Only the nodes make it, write to it or delete it; every client may read it."""
    return name in INTERNAL_STREAMS


def is_hidden(name: str) -> bool:
    """It holds what only Kafka's clients can make sense of: those of NATS are not told of it."""
    return name == OFFSETS_STREAM


def check_writable_by_clients(name: str) -> None:
    """Raise InvalidStreamName for a stream that is the nodes' own."""
    if is_internal(name):
        raise InvalidStreamName(f"{name!r}: an internal stream, which only the nodes change")


def default_min_isr(replicas: int) -> int:
    """A majority: one replica may be away, and whatever is acknowledged is on two of three."""
    return replicas // 2 + 1


class StreamConfig(BaseModel):
    """One stream's settings; see ``settings_table`` for what others call them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    subjects: tuple[str, ...] = ()
    """Partition 0 listens on them, partition i on ``<subject>.<i>``. Default: the name."""
    partitions: Annotated[int, Field(ge=1, le=PARTITIONS_MAX)] = 1
    partition_by: PartitionBy = "subject"
    """With several partitions: ``subject``, as above; or each message of the subjects goes to one
    of them by the hash of its ``key``, or of ``tokens:2,3`` of its subject."""
    group: str = ""
    """Streams of one group share the messages of a subject: a NATS queue group."""
    replicas: Annotated[int, Field(ge=1, le=5)] = 1
    retention_bytes: Annotated[int, Field(ge=-1, le=_INT64_MAX)] = NO_LIMIT
    retention_messages: Annotated[int, Field(ge=-1, le=_INT64_MAX)] = NO_LIMIT
    retention_ms: Annotated[int, Field(ge=-1, le=_INT64_MAX)] = NO_LIMIT
    message_bytes_max: Annotated[int, Field(ge=-1, le=64 * MIB)] = NO_LIMIT
    """-1: the node's ``log.message_bytes_max``."""
    duplicate_window_ms: Annotated[int, Field(ge=100, le=_INT64_MAX)] = DUPLICATE_WINDOW_MS
    """How long a ``Nats-Msg-Id`` is known; default: two minutes, or the retention if shorter."""
    compression: CompressionName = "none"
    sync: SyncPolicy | None = None
    segment_bytes: Annotated[int, Field(ge=4 * KIB, le=2**31 - 1)] | None = None
    segment_age_ms: Annotated[int, Field(ge=100, le=_INT64_MAX)] | None = None
    index_interval_bytes: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    auto_pause_ms: Annotated[int, Field(ge=0, le=_INT64_MAX)] | None = None
    """A replica of a partition that has not been written to for so long closes its files, until
    it is written to; 0: never."""
    min_isr: Annotated[int, Field(ge=1, le=5)] = 1
    """Fewer in sync than this, and writes with acks=all are refused. Default: a majority."""
    unclean_election: bool = False
    """Have a replica that lacks committed records lead when no other is alive: they are lost."""
    acks: Acks = "all"
    timestamp_type: TimestampType = "CreateTime"
    """Of records that Kafka producers send: theirs or the leader's, as those from NATS have."""
    cleanup_policy: CleanupPolicy = "delete"
    """``compact``: the last record of each key is kept, and retention limits do not hold; with
    ``delete`` as well they do."""
    delete_retention_ms: Annotated[int, Field(ge=0, le=_INT64_MAX)] = 86_400_000
    """How long a tombstone stays once a cleaning has passed it, for those who read meanwhile."""
    min_compaction_lag_ms: Annotated[int, Field(ge=0, le=_INT64_MAX)] = 0
    """A record younger than this is not compacted away."""
    max_compaction_lag_ms: Annotated[int, Field(ge=-1, le=_INT64_MAX)] = NO_LIMIT
    """... and one older than this is cleaned soon, however little there is to clean."""
    min_cleanable_dirty_ratio: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The share of the log that has not been cleaned, from which on it is."""
    discard: Literal["old", "new"] = "old"
    """What gives way at a limit on bytes or messages: what is there, or what comes."""
    discard_new_per_subject: bool = False
    """... and at ``max_messages_per_subject``."""
    max_messages_per_subject: Annotated[int, Field(ge=-1, le=_INT64_MAX)] = NO_LIMIT
    """In each partition; the newest stay, unless what comes is to give way there, too."""
    no_ack: bool = False
    sealed: bool = False
    """No record comes or goes any more; for ever."""
    deny_purge: bool = False
    """Records are not purged on request, and it stays so."""
    deny_delete: bool = False
    """Single records are not erased on request, and it stays so."""
    allow_direct: bool = False
    """Messages may be got from any replica in sync, which may lack the last ones."""
    placement_cluster: str = ""
    """The cluster that was asked for by name, which can only be this one."""
    readonly: bool = False
    paused: bool = False
    """Either takes no records until it is switched off."""
    subject_transform: str = ""
    """``SRC -> DEST``: under which subject messages are stored; see ``subject_transform``."""
    republish: str = ""
    """``SRC -> DEST``: where messages are published again once they are committed."""
    allow_atomic: bool = False
    """Batches of messages may be published that are stored together or not at all."""
    allow_ttl: bool = False
    """A message may say how long it stays, by ``Nats-TTL``."""
    allow_rollup: bool = False
    """A message may have those before it go, of its subject or all, by ``Nats-Rollup``."""
    encrypted: bool = False
    """What is stored from now on is so under the node's key; see ``log.encryption``."""
    description: str = ""
    metadata: dict[str, str] = Field(default_factory=dict)
    """Keys of others, kept as they came."""

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

    @property
    def is_compacted(self) -> bool:
        """Each record must have a key."""
        return "compact" in self.cleanup_policy

    @property
    def is_retained(self) -> bool:
        """The retention limits hold."""
        return "delete" in self.cleanup_policy and not self.sealed

    @property
    def is_trimmed(self) -> bool:
        """Single messages go by rules."""
        return self.max_messages_per_subject > 0 or self.allow_rollup or self.allow_ttl

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
        if is_internal(str(filled.get("name"))):
            filled.setdefault("subjects", ())
        elif not filled.get("subjects") and isinstance(filled.get("name"), str):
            filled["subjects"] = (filled["name"],)
        if filled.get("sealed") is True:
            filled |= {"retention_ms": NO_LIMIT, "deny_purge": True, "deny_delete": True}
            filled["allow_rollup"] = False
        if filled.get("min_isr") is None:
            replicas = filled.get("replicas", 1)
            filled["min_isr"] = default_min_isr(replicas) if isinstance(replicas, int) else 1
        if filled.get("duplicate_window_ms") is None:
            retention_ms = filled.get("retention_ms", NO_LIMIT)
            limited = isinstance(retention_ms, int) and retention_ms > 0
            filled["duplicate_window_ms"] = (
                min(DUPLICATE_WINDOW_MS, max(retention_ms, 100)) if limited else DUPLICATE_WINDOW_MS
            )
        return filled

    @model_validator(mode="after")
    def _check(self) -> Self:
        if is_internal(self.name):
            self._check_internal()
        else:
            check_stream_name(self.name)
            each = 1 if self.is_spread else self.partitions
            if len(self.subjects) * each > SUBSCRIPTIONS_MAX:
                raise InvalidStreamConfig(
                    f"subjects: {len(self.subjects)} subjects in {each} partitions are more than"
                    f" {SUBSCRIPTIONS_MAX} subscriptions"
                )
            check_subjects(self.subjects, partitions=each, answers=not self.no_ack)
            self._check_group()
        self._check_other_subjects()
        self._check_limits()
        self._check_discard()
        if self.min_isr > self.replicas:
            raise InvalidStreamConfig(
                f"min_isr: {self.min_isr} is more than the replicas ({self.replicas})"
            )
        if len(self.description.encode()) > DESCRIPTION_BYTES_MAX:
            raise InvalidStreamConfig(f"description: at most {DESCRIPTION_BYTES_MAX} bytes")
        metadata_bytes = sum(len(k.encode()) + len(v.encode()) for k, v in self.metadata.items())
        if metadata_bytes > METADATA_BYTES_MAX:
            raise InvalidStreamConfig(f"metadata: at most {METADATA_BYTES_MAX} bytes")
        return self

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
        if self.subjects:
            raise InvalidStreamConfig(f"subjects: {self.name} is an internal stream, and has none")
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
