"""Whoever reads all events knows what the image says; and each part of them is what it was."""

import json
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.activity.events import ActivityEvent, EventBuilder
from streamlog.errors import InvalidRequest
from streamlog.metadata.controller import batches
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.quorum.store import StoredBatch
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId
from tests.property.test_metadata_image import decide, requests


class Reader:
    """Knows of the cluster what the events say, and nothing else."""

    def __init__(self) -> None:
        self.configs: dict[str, dict[str, Any]] = {}
        self.partitions: dict[tuple[str, int], tuple[Any, ...]] = {}
        self.nodes: dict[int, dict[str, Any]] = {}
        self.quotas: dict[str | None, dict[str, Any]] = {}
        self.users: dict[str, list[str]] = {}

    def read(self, event: ActivityEvent) -> None:
        said = json.loads(event.value)
        name = said.get("stream", "")
        match said["kind"]:
            case "stream_created":
                self.configs[name] = said["config"]
            case "stream_updated":
                _change(self.configs[name], said["changed"])
            case "stream_deleted":
                del self.configs[name]
                self.partitions = {k: v for k, v in self.partitions.items() if k[0] != name}
            case "node_registered":
                self.nodes[said["node"]] = {"host": said["host"], "fenced": said["fenced"]}
            case "node_fenced":
                _change(self.nodes[said["node"]], said["changed"])
            case "quota_changed":
                _change(self.quotas.setdefault(said["client_id"], {}), said["changed"])
            case "user_added" | "user_changed":
                assert (said["user"] in self.users) == (said["kind"] == "user_changed")
                self.users[said["user"]] = said["mechanisms"]
            case "user_removed":
                del self.users[said["user"]]
            case "decoy_secret_chosen":
                pass
            case "metadata_log_begun":
                first = said["first_leader_epoch"]
                self.partitions = {
                    key: (leader, max(epoch, first), *isr)
                    for key, (leader, epoch, *isr) in self.partitions.items()
                }
            case _:
                key = name, said["partition"]
                self.partitions[key] = (said["leader"], said["leader_epoch"], *said["isr"])

    def check(self, image: MetadataImage) -> None:
        assert self.configs == {name: _whole(it.config) for name, it in image.streams.items()}
        assert self.partitions == {
            (name, number): (
                None if it.leader == NO_LEADER else it.leader,
                it.leader_epoch,
                *it.isr,
            )
            for name, stream in image.streams.items()
            for number, it in enumerate(stream.partitions)
        }
        assert self.nodes == {
            node_id: {"host": it.host, "fenced": it.fenced} for node_id, it in image.nodes.items()
        }
        assert self.users == {name: sorted(it) for name, it in image.users.items()}
        limited = {key: quota for key, quota in self.quotas.items() if any(quota.values())}
        assert limited.keys() == set(image.quotas)


def _whole(config: StreamConfig) -> dict[str, Any]:
    """With what a record leaves out at its default."""
    defaults = {name: getattr(config, name) for name in StreamConfig.model_fields}
    return {**defaults, **config.model_dump(mode="json")}


def _change(known: dict[str, Any], changed: dict[str, Any]) -> None:
    for name, (old, new) in ((name, it.values()) for name, it in changed.items()):
        if name in known:
            assert known[name] == old
            known[name] = new
        elif new is not None and name != "stopping":
            known[name] = new


@settings(max_examples=100, deadline=None)
@given(requests, st.integers(1, 5), st.data())
def test_events_are_enough(
    script: list[tuple[str, object]], batch_size: int, data: st.DataObject
) -> None:
    image, log = MetadataImage("c"), list[StoredBatch]()
    images = [image]
    for number, request in enumerate([("start", NodeId(1)), *script]):
        try:
            decision = decide(image, request, number)
        except InvalidRequest:
            continue
        for records in batches(decision, batch_size):
            log.append(StoredBatch(image.offset, 1, tuple(records), number))
            image = image.apply_all(records, offset=image.offset, epoch=1)
            images.append(image)
    chronicle, reader = EventBuilder(MetadataImage("c"), 0, None), Reader()
    events = chronicle.tell(log)
    for event in events:
        reader.read(event)
    reader.check(image)
    assert chronicle.image == image
    assert [event.metadata_offset for event in events] == list(range(image.offset))
    began = data.draw(st.sampled_from(images))
    first = data.draw(st.integers(began.offset, image.offset))
    rest = [batch for batch in log if batch.base_offset >= began.offset]
    assert EventBuilder(began, first, None).tell(rest) == events[first:]


def test_the_ids_of_streams_are_told() -> None:
    decision = decide(MetadataImage("c"), ("start", NodeId(1)), 0)
    image = MetadataImage("c").apply_all(decision.records, offset=0, epoch=1)
    made = decide(image, ("create", _config()), 7)
    batch = StoredBatch(image.offset, 1, tuple(made.records))
    (created, _) = EventBuilder(image, 0, None).tell([batch])
    assert json.loads(created.value)["stream_id"] == str(UUID(int=7))


def _config() -> Any:
    from streamlog.metadata.stream.stream_config import StreamConfig

    return StreamConfig.of(name="a")
