"""A principal who may not know every stream is shown what a cluster without the others would show."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamlog.acl.rules import RuleBook
from streamlog.authz.audit import Audit
from streamlog.authz.service import AuthorizationService
from streamlog.config import AuthorizationSection
from streamlog.http.console.cluster_snapshot import ClusterSnapshot
from streamlog.http.console.event_log import EventLog
from streamlog.http.console.principal_views import PrincipalViews
from streamlog.http.console.query import WANTS, Query
from streamlog.http.console.traffic import Traffic
from streamlog.http.console.view import SeesStream, View
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.model import TopicPartition
from tests.page_world import LocalPartitions, Progress, image, moment, partition, stream
from tests.restricted import ALICE, rule

NAMES = ("eu-a", "eu-b", "us-a", "us-b", "us-secret")
PARTITIONS = (partition(), partition(leader=-1), partition(isr=(1,)), partition(leader=2))
RULES = (
    "describe topic eu-*",
    "describe topic us-a",
    "read topic us-*",
    "describe_configs topic us-b",
)

changes = st.tuples(
    st.sampled_from(NAMES),
    st.one_of(st.none(), st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3)),
)
steps = st.lists(st.one_of(changes, st.sets(st.sampled_from(RULES))), min_size=1, max_size=12)
queries = st.builds(
    Query,
    show=st.sampled_from(("streams", "partitions", "groups", "events", "summary")),
    filter=st.sampled_from(("", "a", "us")),
    stream=st.sampled_from(("", "us-secret", "eu-a")),
    only=st.sampled_from(("", *WANTS)),
    page=st.integers(0, 1),
    size=st.integers(1, 4),
    sort=st.sampled_from(("", "name", "records")),
    descending=st.booleans(),
)


class World:
    """The views of a node, and the cluster that it knows."""

    def __init__(self) -> None:
        self.book = RuleBook()
        authorization = AuthorizationService(
            AuthorizationSection(), lambda: self.book, Audit(), enforced=True
        )
        permissions = authorization.access_of(ALICE)
        assert permissions is not None
        self.permissions = permissions
        self.traffic, self.events = Traffic(), EventLog()
        self.views = PrincipalViews(self.view)
        self.image = image()
        self.asked = 0

    def view(self, sees: SeesStream | None) -> View:
        return View(LocalPartitions(), self.traffic, self.events, sees)

    def rule(self, texts: set[str]) -> None:
        self.book = RuleBook.of(*map(rule, texts))

    def put(self, name: str, partitions: list[Any] | None) -> None:
        old, streams = self.image, self.image.streams
        if partitions is not None:
            streams = streams.set(name, stream(name, *partitions))
        elif name in streams:
            streams = streams.delete(name)
        self.image = replace(
            old,
            streams=streams,
            offset=old.offset + 1,
            parent_offset=old.offset,
            touched=frozenset({name}),
        )
        self.events.changed(old, self.image, 1)
        for it in self.views:
            it.view.follow(it.image(self.image))

    def moment(self, of: MetadataImage, seen: set[str]) -> ClusterSnapshot:
        every = [TopicPartition(name, 0) for name in NAMES if name in seen]
        groups = [Progress("g", dict.fromkeys(every, 3)), Progress("h", {})]
        return moment(
            of,
            now_ms=1_000 * self.asked,
            groups=groups,
            failures=dict.fromkeys(every, "full"),
            damaged=tuple(every),
        )


def shown(view: View, of: ClusterSnapshot, query: Query) -> Any:
    for _ in view.prepare(of, query):
        pass
    found = view.list(of, query)
    summary = view.summary(of)
    del summary["nodes"]  # what a node carries in all is the cluster's
    return summary, found.rows, found.total, view.stream(of, query.stream) if query.stream else None


@given(steps=steps, asked=st.lists(queries, min_size=1, max_size=4))
def test_hidden_streams_leave_no_trace(steps: list[Any], asked: list[Query]) -> None:
    world = World()
    for step in steps:
        if isinstance(step, set):
            world.rule(step)
        else:
            world.put(*step)
        seen = {it for it in NAMES if world.permissions.sees(it)}
        known: dict[str, StreamImage] = {
            name: it for name, it in world.image.streams.items() if name in seen
        }
        without = replace(image(*known.values()), offset=world.image.offset)
        for query in asked:
            world.asked += 1
            mine = world.views.of(world.permissions, world.asked)
            told = shown(mine.view, mine.moment(world.moment(world.image, set(NAMES))), query)
            events = EventLog()
            for event in reversed(world.events.latest(1_000)):
                events._next = event.number
                if event.stream in seen or event.kind == "node":
                    events.note(event.kind, event.text, event.time_ms, event.stream)
            naive = View(LocalPartitions(), Traffic(), events)
            assert told == shown(naive, world.moment(without, seen), query)
    everything = world.views.of(None, world.asked)
    of = everything.moment(world.moment(world.image, set(NAMES)))
    assert everything.view.list(of, Query()).total == len(world.image.streams)
