"""The fields of every request. Pure."""

from collections.abc import Mapping
from typing import Final

from streamlog.jetstream.requests.schema import (
    DURATION,
    DURATIONS,
    FLAG,
    INT,
    INT32,
    TEXT,
    TEXT_MAP,
    TEXTS,
    TIME,
    UINT,
    FieldKind,
    Shape,
    an_object,
    choice,
    objects,
)
from streamlog.metadata.stream.setting_type import JsonType, StreamSetting
from streamlog.metadata.stream.settings_translation import SETTINGS

PLACEMENT: Final = Shape(cluster=TEXT, tags=TEXTS, preferred=TEXT)
_TRANSFORM: Final = Shape(src=TEXT, dest=TEXT)
_SOURCE: Final = Shape(
    name=TEXT,
    opt_start_seq=UINT,
    opt_start_time=TIME,
    filter_subject=TEXT,
    subject_transforms=objects(_TRANSFORM),
    external=an_object(Shape(api=TEXT, deliver=TEXT)),
    consumer=an_object(Shape(name=TEXT, deliver_subject=TEXT)),
)

_TYPES: Final[Mapping[JsonType, FieldKind]] = {
    "text": TEXT,
    "texts": TEXTS,
    "flag": FLAG,
    "int": INT,
    "int32": INT32,
    "duration": DURATION,
    "transform": an_object(_TRANSFORM),
    "republish": an_object(Shape(src=TEXT, dest=TEXT, headers_only=FLAG)),
    "placement": an_object(PLACEMENT),
    "origin": an_object(_SOURCE),
    "origins": objects(_SOURCE),
    "consumer_limits": an_object(Shape(inactive_threshold=DURATION, max_ack_pending=INT)),
}


def _kind(row: StreamSetting) -> FieldKind:
    if row.form.json == "choice":
        return choice(*(row.form.json_choices or row.type.choices))
    return _TYPES[row.form.json]


STREAM_CONFIG: Final = Shape(
    **{row.jetstream: _kind(row) for row in SETTINGS if row.jetstream not in (None, "first_seq")},
    name=TEXT,
    metadata=TEXT_MAP,
    first_seq=UINT,
    pedantic=FLAG,
)
"""The settings of the table, and the fields of JetStream that mean one thing here, or nothing."""
NAMES: Final = Shape(offset=INT, subject=TEXT)
STREAM_INFO: Final = Shape(offset=INT, deleted_details=FLAG, subjects_filter=TEXT)
SNAPSHOT: Final = Shape(
    deliver_subject=TEXT, no_consumers=FLAG, chunk_size=INT, window_size=INT, jsck=FLAG
)
PURGE: Final = Shape(seq=UINT, filter=TEXT, keep=UINT)
MESSAGE: Final = Shape(
    seq=UINT,
    last_by_subj=TEXT,
    next_by_subj=TEXT,
    batch=INT,
    max_bytes=INT,
    start_time=TIME,
    multi_last=TEXTS,
    up_to_seq=UINT,
    up_to_time=TIME,
    no_hdr=FLAG,
)
MESSAGE_DELETE: Final = Shape(seq=UINT, no_erase=FLAG)
STEP_DOWN: Final = Shape(placement=an_object(PLACEMENT))
REMOVE_PEER: Final = Shape(peer=TEXT)
CONSUMERS: Final = Shape(offset=INT)
CONSUMER_CONFIG: Final = Shape(
    durable_name=TEXT,
    name=TEXT,
    description=TEXT,
    deliver_policy=choice(
        "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject", "undefined"
    ),
    opt_start_seq=UINT,
    opt_start_time=TIME,
    ack_policy=choice("none", "all", "explicit", "flow_control"),
    ack_wait=DURATION,
    max_deliver=INT,
    backoff=DURATIONS,
    filter_subject=TEXT,
    filter_subjects=TEXTS,
    replay_policy=choice("instant", "original"),
    rate_limit_bps=UINT,
    sample_freq=TEXT,
    max_waiting=INT,
    max_ack_pending=INT,
    flow_control=FLAG,
    headers_only=FLAG,
    max_batch=INT,
    max_expires=DURATION,
    max_bytes=INT,
    deliver_subject=TEXT,
    deliver_group=TEXT,
    idle_heartbeat=DURATION,
    inactive_threshold=DURATION,
    num_replicas=INT,
    mem_storage=FLAG,
    direct=FLAG,
    sourcing=FLAG,
    metadata=TEXT_MAP,
    pause_until=TIME,
    priority_groups=TEXTS,
    priority_policy=choice("none", "overflow", "pinned_client", "prioritized"),
    priority_timeout=DURATION,
)
CONSUMER_CREATE: Final = Shape(
    stream_name=TEXT,
    config=an_object(CONSUMER_CONFIG),
    action=choice("", "create", "update"),
    pedantic=FLAG,
)
PAUSE: Final = Shape(pause_until=TIME)
UNPIN: Final = Shape(group=TEXT)
"""This and those below are read by ``read_loosely``."""
RESET: Final = Shape(seq=UINT)
PULL: Final = Shape(
    expires=DURATION,
    batch=INT,
    max_bytes=INT,
    no_wait=FLAG,
    idle_heartbeat=DURATION,
    group=TEXT,
    min_pending=INT,
    min_ack_pending=INT,
    id=TEXT,
    priority=INT,
)
NAK: Final = Shape(delay=DURATION)
NOTHING: Final = Shape()
