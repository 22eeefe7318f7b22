"""The fields of every request. Pure."""

from typing import Final

from streamlog.jetstream.requests.schema import (
    DURATION,
    FLAG,
    INT,
    INT32,
    TEXT,
    TEXT_MAP,
    TEXTS,
    TIME,
    UINT,
    Shape,
    an_object,
    choice,
    objects,
)

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

STREAM_CONFIG: Final = Shape(
    name=TEXT,
    description=TEXT,
    subjects=TEXTS,
    retention=choice("limits", "interest", "workqueue"),
    max_consumers=INT,
    max_msgs=INT,
    max_bytes=INT,
    max_age=DURATION,
    max_msgs_per_subject=INT,
    max_msg_size=INT32,
    discard=choice("old", "new"),
    storage=choice("file", "memory"),
    num_replicas=INT,
    no_ack=FLAG,
    duplicate_window=DURATION,
    placement=an_object(PLACEMENT),
    mirror=an_object(_SOURCE),
    sources=objects(_SOURCE),
    compression=choice("none", "s2"),
    first_seq=UINT,
    subject_transform=an_object(_TRANSFORM),
    republish=an_object(Shape(src=TEXT, dest=TEXT, headers_only=FLAG)),
    allow_direct=FLAG,
    mirror_direct=FLAG,
    discard_new_per_subject=FLAG,
    sealed=FLAG,
    deny_delete=FLAG,
    deny_purge=FLAG,
    allow_rollup_hdrs=FLAG,
    consumer_limits=an_object(Shape(inactive_threshold=DURATION, max_ack_pending=INT)),
    allow_msg_ttl=FLAG,
    subject_delete_marker_ttl=DURATION,
    allow_msg_counter=FLAG,
    allow_atomic=FLAG,
    allow_msg_schedules=FLAG,
    persist_mode=choice("default", "async", ""),
    allow_batched=FLAG,
    metadata=TEXT_MAP,
    pedantic=FLAG,
)
NAMES: Final = Shape(offset=INT, subject=TEXT)
STREAM_INFO: Final = Shape(offset=INT, deleted_details=FLAG, subjects_filter=TEXT)
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
NOTHING: Final = Shape()
