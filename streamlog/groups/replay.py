"""From the log of a partition of ``__consumer_offsets`` to its groups. Pure."""

from streamlog.coordination.replay import LogReplay
from streamlog.groups.consumer_group import ConsumerGroup, ConsumerGroupData
from streamlog.groups.consumer_group_records import (
    ConsumerGroupKey,
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


class GroupReplay(LogReplay):
    """``feed`` the log, batch by batch, then take the groups that are ``built``."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[str, KeptGroup] = {}
        self._offsets: dict[str, dict[PartitionId, CommittedOffset]] = {}
        self._consumers: dict[str, ConsumerGroupData] = {}

    def take(self, key: bytes, value: bytes | None) -> None:
        """One record; those of kinds that are none of ours are passed over."""
        read = read_key(key)
        if read is None:
            consumer_key = read_consumer_group_key(key)
            if consumer_key is not None:
                self._take_consumers(consumer_key, value)
            return
        if not isinstance(read, OffsetKey):
            self._take_group(read.group, value)
            return
        place = (read.topic, read.partition)
        if value is not None:
            self._offsets.setdefault(read.group, {})[place] = read_offset(value)
            return
        known = self._offsets.get(read.group)
        if known is not None:
            known.pop(place, None)
            if not known:
                del self._offsets[read.group]

    def built(self) -> list[Group]:
        """As they were when the last record was written."""
        made = []
        for name in {**self._groups, **self._consumers, **self._offsets}:
            kept = self._groups.get(name)
            group = Group(name) if kept is None else restored(name, kept)
            group.offsets = self._offsets.get(name, {})
            if name in self._consumers:
                group.consumer = ConsumerGroup(name, self._consumers[name])
            made.append(group)
        return made

    def _take_group(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._groups.pop(name, None)
        else:
            self._groups[name] = read_group(value)

    def _take_consumers(self, key: ConsumerGroupKey, value: bytes | None) -> None:
        if value is not None:
            self._consumers.setdefault(key.group, {})[key] = read_consumer_group_value(key, value)
            return
        known = self._consumers.get(key.group)
        if known is not None:
            known.pop(key, None)
            if not known:
                del self._consumers[key.group]
