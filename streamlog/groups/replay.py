"""From the log of a partition of ``__consumer_offsets`` to its groups. Pure.

The last record of each key holds. What was read costs no more memory than what there is.
"""

from streamlog.groups.consumer_group import ConsumerGroup, ConsumerGroupData
from streamlog.groups.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    read_consumer_group_key,
    read_consumer_group_value,
)
from streamlog.groups.group import Group, restored
from streamlog.groups.records import (
    CommittedOffset,
    KeptGroup,
    OffsetKey,
    read_group,
    read_key,
    read_offset,
)
from streamlog.groups.requests import PartitionId
from streamlog.groups.shares.share_group import (
    ShareGroup,
    read_configs,
    read_configs_key,
    read_share_group_key,
    read_share_group_value,
)
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records


class Replay:
    """``feed`` the log, batch by batch, then take ``groups``. May be used in any one thread."""

    def __init__(self) -> None:
        self.next_offset = 0
        """All below has been read."""
        self.records = 0
        self._groups: dict[str, KeptGroup] = {}
        self._offsets: dict[str, dict[PartitionId, CommittedOffset]] = {}
        self._consumers: dict[str, ConsumerGroupData] = {}
        self._shares: dict[str, ConsumerGroupData] = {}
        self.share_configs: dict[str, dict[str, str]] = {}
        """Of share groups, by group; there may be no such group."""

    def feed(self, data: bytes | memoryview) -> None:
        """Whole batches, back to back. Raises CorruptBatch."""
        for header, batch in batches(data):
            if not header.is_control:
                for record in iter_records(batch):
                    if record.offset >= self.next_offset and record.key is not None:
                        self.take(record.key, record.value)
            self.next_offset = max(self.next_offset, header.next_offset)

    def take(self, key_bytes: bytes, value: bytes | None) -> None:
        """One record; those of kinds that are none of ours are passed over."""
        self.records += 1
        key = read_key(key_bytes)
        if key is None:
            self._take_other(key_bytes, value)
            return
        if not isinstance(key, OffsetKey):
            self._take_group(key.group, value)
            return
        place = (key.topic, key.partition)
        if value is not None:
            self._offsets.setdefault(key.group, {})[place] = read_offset(value)
            return
        known = self._offsets.get(key.group)
        if known is not None:
            known.pop(place, None)
            if not known:
                del self._offsets[key.group]

    def groups(self) -> list[Group]:
        """As they were when the last record was written."""
        made = []
        for name in {**self._groups, **self._consumers, **self._shares, **self._offsets}:
            kept = self._groups.get(name)
            group = Group(name) if kept is None else restored(name, kept)
            group.offsets = self._offsets.get(name, {})
            if name in self._consumers:
                group.consumer = ConsumerGroup(name, self._consumers[name])
            elif name in self._shares:
                group.consumer = ShareGroup(name, self._shares[name])
            made.append(group)
        return made

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
            self.share_configs.pop(group, None)
        elif group is not None and value is not None:
            self.share_configs[group] = read_configs(value)


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
