"""What one record of the metadata log means to those who read ``__activity``. Pure.

``docs/activity.md`` has the form for readers. It is stable: fields may come, none goes or changes
its meaning while ``VERSION`` stays. A record is told whole, and, where it changes what was there,
as ``changed``: what was and what is, by name.

``EventBuilder`` takes batches of the metadata log on top of an image.
"""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from streamlog.metadata.image import records as facts
from streamlog.metadata.image.credential import Credentials
from streamlog.metadata.image.image_types import NodeImage, PartitionImage
from streamlog.metadata.image.metadata_delta import MetadataDelta
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.quota import NO_QUOTA
from streamlog.metadata.image.records import MetadataRecord
from streamlog.metadata.quorum.store import StoredBatch
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER

VERSION: Final = 1
SUBJECT: Final = "activity"
"""Events have subjects, by which they are found, although no client publishes them there."""

Fields = dict[str, Any]


class ActivityEvent(NamedTuple):
    """One record of ``__activity``."""

    metadata_offset: int
    kind: str
    about: str
    """A stream, or a node's number; empty where it is about neither."""
    stream: str | None
    value: bytes

    @property
    def key(self) -> bytes | None:
        return None if self.stream is None else self.stream.encode()

    @property
    def subject(self) -> bytes:
        """``activity.<kind>``, and what it is about."""
        return ".".join(filter(None, (SUBJECT, self.kind, self.about))).encode()


class Told(NamedTuple):
    """How far a metadata log is told: all below ``next_offset``. Offsets of two logs do not
    compare.
    """

    log_id: str | None
    """None where nothing is told, or where the log had no name yet."""
    next_offset: int


def log_id_of(image: MetadataImage) -> str | None:
    """As events name it."""
    return None if image.log is None else str(image.log.log_id)


def event_of(
    record: facts.MetadataRecord,
    before: MetadataDelta,
    *,
    log_id: str | None,
    offset: int,
    epoch: int,
    time_ms: int,
) -> ActivityEvent:
    """``record`` stands at ``offset`` of the metadata log ``log_id``, was written in that epoch of
    the quorum, and decided at that time.
    """
    kind, fields = _told(record, before)
    return _event(kind, fields, log_id=log_id, offset=offset, epoch=epoch, time_ms=time_ms)


def gap_event(
    told: Told, end: int, *, log_id: str | None, epoch: int, time_ms: int
) -> ActivityEvent:
    """What follows ``told``, below ``end``, is not told one by one. The metadata log has let go of
    it, and a snapshot stands for it; or another log was told last, and its end is lost.
    """
    fields: Fields = {"first_metadata_offset": told.next_offset}
    if told.log_id != log_id:
        fields = {
            "first_metadata_offset": 0,
            "previous_log_id": told.log_id,
            "previous_metadata_offset": told.next_offset - 1,
        }
    return _event("gap", fields, log_id=log_id, offset=end - 1, epoch=epoch, time_ms=time_ms)


def told_by(value: bytes) -> Told:
    """What is told up to the event of this value. Raises ValueError."""
    try:
        event = json.loads(value)
        offset, log_id = event["metadata_offset"], event.get("log_id")
    except (TypeError, KeyError, AttributeError, UnicodeDecodeError):
        offset, log_id = None, None
    if type(offset) is not int or offset < -1 or not isinstance(log_id, str | None):
        raise ValueError(f"no event: {value[:80]!r}")
    return Told(log_id, offset + 1)


def _event(
    kind: str, fields: Fields, *, log_id: str | None, offset: int, epoch: int, time_ms: int
) -> ActivityEvent:
    head = {
        "version": VERSION,
        "kind": kind,
        "log_id": log_id,
        "metadata_offset": offset,
        "epoch": epoch,
        "time_ms": time_ms,
    }
    said = json.dumps({**head, **fields}, ensure_ascii=False)
    about = str(fields.get("stream") or fields.get("node") or "")
    return ActivityEvent(offset, kind, about, fields.get("stream"), said.encode())


def _told(record: facts.MetadataRecord, before: MetadataDelta) -> tuple[str, Fields]:
    match record:
        case facts.StreamCreated() | facts.StreamUpdated() | facts.StreamDeleted():
            return _stream(record, before)
        case facts.PartitionChanged():
            return _partition(record, before.partition(record.stream, record.partition))
        case facts.TierChanged():
            return "tier_changed", record.model_dump()
        case facts.NodeRegistered() | facts.NodeRemoved():
            return _node(record, before.nodes.get(record.node_id))
        case facts.NodeStamped():
            return "node_stamped", {"node": record.node_id}
        case (
            facts.NodePlaced()
            | facts.NodeFenced()
            | facts.NodeDraining()
            | facts.NodeFull()
            | facts.NodeUnfit()
        ):
            return _node_state(record, before.nodes.get(record.node_id))
        case _:
            return _of_cluster(record, before)


def _stream(
    record: facts.StreamCreated | facts.StreamUpdated | facts.StreamDeleted, before: MetadataDelta
) -> tuple[str, Fields]:
    match record:
        case facts.StreamCreated(stream_id=stream_id, config=config):
            told = {"stream": config.name, "stream_id": str(stream_id), "config": _dumped(config)}
            return "stream_created", told
        case facts.StreamUpdated(config=config):
            changed = _changed(_dumped(before.config(config.name)), _dumped(config))
            return "stream_updated", {"stream": config.name, "changed": changed}
        case facts.StreamDeleted(name=name, stream_id=stream_id):
            return "stream_deleted", {"stream": name, "stream_id": str(stream_id)}


def _of_cluster(record: facts.MetadataRecord, before: MetadataDelta) -> tuple[str, Fields]:
    match record:
        case facts.QuorumLeader(node_id=node_id):
            return "controller_elected", {"node": node_id}
        case facts.VotersChanged(voters=voters):
            told = [{"node": it.node_id, "host": it.host, "port": it.port} for it in voters]
            return "voters_changed", {"voters": told}
        case facts.ProducerIdsAllocated(node_id=node_id, end=end):
            return "producer_ids_allocated", {"node": node_id, "end": end}
        case facts.LeaderEpochsReserved(end=end):
            return "leader_epochs_reserved", {"end": end}
        case facts.MetadataLogBegun():
            names = ("first_producer_id", "first_leader_epoch")
            return "metadata_log_begun", {name: getattr(record, name) for name in names}
        case _:
            return _of_clients(record, before)


def _of_clients(record: facts.MetadataRecord, before: MetadataDelta) -> tuple[str, Fields]:
    match record:
        case facts.QuotaChanged(client_id=client_id, quota=quota):
            known = before.quotas.get(client_id, NO_QUOTA)
            changed = _changed(known.model_dump(), quota.model_dump())
            return "quota_changed", {"client_id": client_id, "changed": changed}
        case facts.UserChanged(name=name, credentials=credentials):
            return _user(name, before.users.get(name, {}), credentials)
        case facts.DecoySecretChosen():
            return "decoy_secret_chosen", {}
        case facts.AccessRuleAdded(rule=rule):
            return "access_rule_added", rule.model_dump(mode="json")
        case facts.AccessRuleRemoved(rule=rule):
            return "access_rule_removed", rule.model_dump(mode="json")
        case facts.FeatureLevelChanged(level=level):
            return "feature_level_changed", {"level": level}
    raise AssertionError(f"{type(record).__name__} is not told")


def _user(name: str, before: Credentials, now: Credentials) -> tuple[str, Fields]:
    """What a user logs in by, and nothing of the passwords but that they are others now."""
    changed = sorted(it for it in now if it in before and before[it] != now[it])
    fields: Fields = {"user": name, "mechanisms": sorted(now), "passwords_changed": changed}
    if not now:
        return "user_removed", {"user": name}
    return ("user_changed" if before else "user_added"), fields


def _partition(record: facts.PartitionChanged, before: PartitionImage | None) -> tuple[str, Fields]:
    """The kind is what matters most of it: who leads, then who keeps it, then who is in sync."""
    now = _partition_fields(record)
    fields = {"stream": record.stream, "partition": record.partition, **now}
    if before is None:
        return "partition_created", fields
    changed = _changed(_partition_fields(before), now)
    fields["changed"] = changed
    if "leader" in changed or "leader_epoch" in changed:
        return "leader_changed", fields
    if not changed.keys().isdisjoint({"replicas", "adding", "removing"}):
        return "replicas_changed", fields
    return "isr_changed", fields


def _partition_fields(it: facts.PartitionChanged | PartitionImage) -> Fields:
    return {
        "leader": None if it.leader == NO_LEADER else it.leader,
        "leader_epoch": it.leader_epoch,
        "replicas": list(it.replicas),
        "isr": list(it.isr),
        "adding": list(it.adding),
        "removing": list(it.removing),
        "partition_epoch": it.partition_epoch,
    }


def _node(
    record: facts.NodeRegistered | facts.NodeRemoved, before: NodeImage | None
) -> tuple[str, Fields]:
    if isinstance(record, facts.NodeRemoved):
        return "node_removed", {"node": record.node_id}
    now = _node_fields(record)
    fields = {"node": record.node_id, **now}
    if before is not None:
        fields["changed"] = _changed(_node_fields(before), now)
    return "node_registered", fields


def _node_fields(it: facts.NodeRegistered | NodeImage) -> Fields:
    return {
        "host": it.host,
        "port": it.port,
        "rack": it.rack,
        "incarnation": str(it.incarnation),
        "fenced": it.fenced,
    }


def _node_state(
    record: facts.NodePlaced
    | facts.NodeFenced
    | facts.NodeDraining
    | facts.NodeFull
    | facts.NodeUnfit,
    before: NodeImage | None,
) -> tuple[str, Fields]:
    """What a node may be, and now is or is not any more."""
    now = record.model_dump()
    del now["node_id"]
    was = {name: getattr(before, name) for name in now} if before is not None else {}
    kind = {
        facts.NodePlaced: "node_placed",
        facts.NodeFenced: "node_fenced",
        facts.NodeDraining: "node_draining",
        facts.NodeFull: "node_full",
        facts.NodeUnfit: "node_unfit",
    }[type(record)]
    return kind, {"node": record.node_id, **now, "changed": _changed(was, now)}


def _dumped(config: StreamConfig | None) -> Fields:
    """With the settings that a record leaves out at their defaults: one that is taken back has changed."""
    if config is None:
        return {}
    told = config.model_dump(mode="json")
    return {name: told.get(name, getattr(config, name)) for name in StreamConfig.model_fields}


def _changed(old: Fields, new: Fields) -> Fields:
    """What was and what is, of each field that differs."""
    return {
        name: {"old": old.get(name), "new": value}
        for name, value in new.items()
        if name not in old or old[name] != value
    }


class EventBuilder:
    """``image`` is all that was read; events begin at ``first``, which may be past its offset.

    ``log_id``: of the metadata log that is read. Its first records come before its name.
    """

    def __init__(self, image: MetadataImage, first: int, log_id: str | None) -> None:
        self.image = image
        self._first = first
        self._log_id = log_id

    def tell(self, batches: Iterable[StoredBatch]) -> list[ActivityEvent]:
        """One event for each record, in order. The first batch begins where ``image`` ends."""
        events: list[ActivityEvent] = []
        for batch in batches:
            self.image = self.image.apply_all(
                batch.records,
                offset=batch.base_offset,
                epoch=batch.epoch,
                told=partial(self._tell_one, events, batch),
            )
        return events

    def rest(self, image: MetadataImage) -> None:
        """All was read: from now on ``image``, which is equal, is the one that is held, so that it
        is not there twice.
        """
        if image.offset == self.image.offset:
            self.image = image

    def _tell_one(
        self,
        events: list[ActivityEvent],
        batch: StoredBatch,
        record: MetadataRecord,
        offset: int,
        before: MetadataDelta,
    ) -> None:
        if offset >= self._first:
            events.append(
                event_of(
                    record,
                    before,
                    log_id=self._log_id,
                    offset=offset,
                    epoch=batch.epoch,
                    time_ms=batch.time_ms,
                )
            )


def runs(events: Iterable[ActivityEvent], bytes_max: int) -> Iterator[list[ActivityEvent]]:
    """As many at once as fit; a larger one by itself."""
    run: list[ActivityEvent] = []
    size = 0
    for event in events:
        if run and size + len(event.value) > bytes_max:
            yield run
            run, size = [], 0
        run.append(event)
        size += len(event.value)
    if run:
        yield run
