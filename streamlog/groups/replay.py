"""From the log of a partition of ``__consumer_offsets`` to its groups. Pure."""

from collections.abc import Iterable, Mapping

from streamlog.coordination.replay import LogReplay
from streamlog.groups.consumer_group import ConsumerGroup, ConsumerGroupData
from streamlog.groups.group import Group, PendingOffset, TransactionalOffsets, restored
from streamlog.groups.records import (
    CommittedOffset,
    ConsumerGroupKey,
    ConsumerGroupValue,
    KeptGroup,
    OffsetKey,
    read_configs,
    read_configs_key,
    read_consumer_group_key,
    read_consumer_group_value,
    read_group,
    read_key,
    read_offset,
    read_share_group_key,
    read_share_group_value,
)
from streamlog.groups.requests import PartitionId
from streamlog.groups.shares.share_group import ShareGroup
from streamlog.record.batch import BatchHeader
from streamlog.record.compression import Buffer
from streamlog.record.transaction_marker import marker_of


class KeptGroups(list[Group]):
    """The groups, as they were when the last record was written."""

    def __init__(
        self, groups: Iterable[Group], share_configs: Mapping[str, Mapping[str, str]]
    ) -> None:
        super().__init__(groups)
        self.share_configs = share_configs
        """Of share groups, by group; there may be no such group."""


class GroupReplay(LogReplay):
    """``feed`` the log, batch by batch, then take the groups that are ``built``."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[str, KeptGroup] = {}
        self._offsets: dict[str, dict[PartitionId, CommittedOffset]] = {}
        self._consumers: dict[str, ConsumerGroupData] = {}
        self._pending: dict[str, TransactionalOffsets] = {}
        self._shares: dict[str, ConsumerGroupData] = {}
        self._share_configs: dict[str, dict[str, str]] = {}

    def take(
        self, key: bytes, value: bytes | None, offset: int = 0, header: BatchHeader | None = None
    ) -> None:
        """One record; those of kinds that are none of ours are passed over."""
        read = read_key(key)
        if read is None:
            self._take_other(key, value)
            return
        if not isinstance(read, OffsetKey):
            self._take_group(read.group, value)
            return
        place = (read.topic, read.partition)
        if header is not None and header.is_transactional and value is not None:
            pending = self._pending.setdefault(read.group, TransactionalOffsets())
            pending.add(header.producer_id, place, PendingOffset(read_offset(value), offset))
            return
        self._set_offset(read.group, place, None if value is None else read_offset(value), offset)

    def _set_offset(
        self, group: str, place: PartitionId, value: CommittedOffset | None, order: int
    ) -> None:
        if group in self._pending:
            self._pending[group].supersede(place, order)
        if value is not None:
            self._offsets.setdefault(group, {})[place] = value
            return
        known = self._offsets.get(group)
        if known is not None:
            known.pop(place, None)
            if not known:
                del self._offsets[group]

    def _take_control(self, header: BatchHeader, batch: Buffer) -> None:
        marker = marker_of(batch, header)
        if marker is None:
            return
        for group, pending in self._pending.items():
            for place, it in pending.take(marker.producer_id).items():
                if marker.is_commit:
                    self._set_offset(group, place, it.value, it.order)

    def built(self) -> KeptGroups:
        made = []
        pending = {name: it for name, it in self._pending.items() if it}
        known = (self._groups, self._consumers, self._shares, self._offsets, pending)
        for name in {name: None for it in known for name in it}:
            kept = self._groups.get(name)
            group = Group(name) if kept is None else restored(name, kept)
            group.offsets = self._offsets.get(name, {})
            group.transactional = pending.get(name, group.transactional)
            if name in self._consumers:
                group.consumer = ConsumerGroup(name, self._consumers[name])
            elif name in self._shares:
                group.consumer = ShareGroup(name, self._shares[name])
            made.append(group)
        return KeptGroups(made, self._share_configs)

    def _take_group(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._groups.pop(name, None)
        else:
            self._groups[name] = read_group(value)

    def _take_other(self, key_bytes: bytes, value: bytes | None) -> None:
        consumer_key = read_consumer_group_key(key_bytes)
        if consumer_key is not None:
            read = None if value is None else read_consumer_group_value(consumer_key, value)
            _keep(self._consumers, consumer_key, read)
            return
        share_key = read_share_group_key(key_bytes)
        if share_key is not None:
            read = None if value is None else read_share_group_value(share_key, value)
            _keep(self._shares, share_key, read)
            return
        group = read_configs_key(key_bytes)
        if group is not None and value is None:
            self._share_configs.pop(group, None)
        elif group is not None and value is not None:
            self._share_configs[group] = read_configs(value)


def _keep(
    groups: dict[str, ConsumerGroupData], key: ConsumerGroupKey, value: ConsumerGroupValue | None
) -> None:
    if value is not None:
        groups.setdefault(key.group, {})[key] = value
        return
    known = groups.get(key.group)
    if known is not None:
        known.pop(key, None)
        if not known:
            del groups[key.group]
