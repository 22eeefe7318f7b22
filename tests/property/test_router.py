"""The compiled router gives each message to those to whom a naive one gives it, whatever came before."""

import gc
import random
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamlog.errors import InvalidRequest
from streamlog.ingest.pub_ack_format import ack_head
from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.router import ROUTES_BYTES_MAX, ROUTES_MAX, Callback, Router, Subscription
from tests.oracles import acks as acks_oracle
from tests.oracles import router as oracle
from tests.oracles.router import Subscriber, Subscriptions

OWNERS = 3
GROWTH_BYTES_MAX = 96 << 20

literals = st.sampled_from([b"a", b"b", b"ab", b"a", b"\xff", b"\x00"])
odd_tokens = st.sampled_from([b"", b"*a", b">a", b"**", b"\x01\x7f"])
tokens = literals | literals | st.sampled_from([b"*", b">"]) | odd_tokens
subjects = st.lists(literals | odd_tokens | st.sampled_from([b"*", b">"]), max_size=4).map(
    b".".join
)
patterns = st.lists(literals | st.sampled_from([b"*", b"*", b"**", b"a>"]), max_size=3).flatmap(
    lambda head: (literals | st.sampled_from([b"*", b">"])).map(
        lambda last: b".".join([*head, last])
    )
)
queues = st.sampled_from([b"", b"", b"", b"q", b"r", b"*"])


def fail(error: Exception) -> None:
    raise error


class RouterAgainstOracle(RuleBasedStateMachine):
    """Subscriptions come and go between messages, so that a route that is kept is a wrong one."""

    def __init__(self) -> None:
        super().__init__()
        self.oracle = Subscriptions()
        self.ours: dict[Subscriber, Subscription] = {}
        self.got: list[tuple[Subscriber, bytes, bytes, bytes, bytes]] = []
        self.number = 0
        self.told: list[bytes] = []

    @initialize(seed=st.integers(1, 2**63 - 1))
    def make(self, seed: int) -> None:
        self.router = Router(seed=seed)
        self.owners = [Callback(self.router, failed=fail) for _ in range(OWNERS)]

    @rule(owner=st.integers(0, OWNERS - 1), subject=patterns, queue=queues)
    def add(self, owner: int, subject: bytes, queue: bytes) -> None:
        self.number += 1
        subscriber = Subscriber(self.number, owner, subject, queue)

        def target(*message: bytes) -> None:
            self.got.append((subscriber, *message))  # type: ignore[arg-type]

        ours = Subscription(self.owners[owner], subject, queue=queue, target=target)
        self.router.add(ours)
        self.oracle.add(subscriber)
        self.ours[subscriber] = ours

    @rule(subject=subjects)
    def add_refused(self, subject: bytes) -> None:
        if oracle.is_subscribable(subject):
            return
        generation = self.router.generation
        with pytest.raises(InvalidRequest):
            self.router.add(Subscription(self.owners[0], subject))
        assert self.router.generation == generation

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.ours:
            subscriber = data.draw(st.sampled_from(sorted(self.ours)))
            ours = self.ours.pop(subscriber)
            self.oracle.remove(subscriber)
            self.router.remove(ours)
            self.router.remove(ours)  # which does nothing

    @rule(
        subject=subjects,
        source=st.none() | st.integers(0, OWNERS - 1),
        rest=st.tuples(st.binary(max_size=5), st.binary(max_size=5), st.binary(max_size=5)),
    )
    def publish(self, subject: bytes, source: int | None, rest: tuple[bytes, bytes, bytes]) -> None:
        reply, block, payload = rest
        count = self.router.publish(
            subject,
            payload,
            reply=reply,
            block=block,
            source=None if source is None else self.owners[source],
        )
        assert all(each[1:] == (subject, reply, block, payload) for each in self.got)
        got = [each[0] for each in self.got]
        assert count == len(got)
        assert self.oracle.is_right(got, subject, source=source), (subject, got)
        self.got.clear()

    @rule(subject=subjects)
    def matches(self, subject: bytes) -> None:
        plain, groups = self.router.matches(subject)
        by_ours = {ours: subscriber for subscriber, ours in self.ours.items()}
        assert len(set(plain)) == len(plain)
        assert {by_ours[it] for it in plain} == self.oracle.plain(subject)
        found = {group[0].queue: {by_ours[it] for it in group} for group in groups}
        assert len(found) == len(groups)
        assert found == self.oracle.groups(subject)

    @rule(
        replies=st.lists(
            st.tuples(
                st.integers(0, 2**32 - 1),
                st.one_of(subjects.map(lambda it: b"\0" + it), subjects, st.binary(max_size=5)),
            ),
            max_size=6,
        ),
        base_offset=st.integers(0, 2**62),
    )
    def acknowledge(self, replies: list[tuple[int, bytes]], base_offset: int) -> None:
        packed, head = oracle.packed(replies), ack_head("orders")
        lines = self.router.acknowledge(packed, head, base_offset)
        assert lines == acks_oracle.build_acks(packed, head, base_offset)
        self._check_answers(oracle.acknowledged(packed, head, base_offset))
        lines = self.router.respond(packed, b"no")
        assert lines == acks_oracle.build_refusals(packed, b"no")
        self._check_answers([(reply, b"no") for _, reply in oracle.answered(packed)])

    def _check_answers(self, wanted: list[tuple[bytes, bytes]]) -> None:
        """Each of these has gone to those who subscribe to it, and nothing else has gone."""
        got = list(self.got)
        self.got.clear()
        for subject, payload in wanted:
            plain = len(self.oracle.plain(subject))
            count = plain + len(self.oracle.groups(subject))
            mine, got = got[:count], got[count:]
            assert all(each[1:] == (subject, b"", b"", payload) for each in mine)
            assert self.oracle.is_right([each[0] for each in mine], subject)
        assert not got

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "router"):
            assert len(self.router) == len(self.ours)


TestRouterAgainstOracle = RouterAgainstOracle.TestCase
TestRouterAgainstOracle.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)


@given(patterns, st.lists(patterns, max_size=5), subjects, st.lists(subjects, max_size=3))
@settings(max_examples=300, deadline=None)
def test_route_forgets_what_it_knew(
    late: bytes, early: list[bytes], subject: bytes, others: list[bytes]
) -> None:
    """A message before, with, and after one subscription, and others between."""
    router, got = Router(), list[bytes]()
    endpoint = Callback(router, failed=fail)
    known = Subscriptions()

    def added(pattern: bytes) -> Subscription:
        subscription = Subscription(endpoint, pattern, target=lambda *_: got.append(pattern))
        router.add(subscription)
        return subscription

    def check() -> None:
        for each in (subject, *others, subject):
            router.publish(each, b"")
            assert sorted(got) == sorted(it.subject for it in known.plain(each))
            got.clear()

    for number, pattern in enumerate(early):
        added(pattern)
        known.add(Subscriber(number, 0, pattern))
    check()
    last = Subscriber(len(early), 0, late)
    subscription = added(late)
    known.add(last)
    check()
    router.remove(subscription)
    known.remove(last)
    check()


def test_routes_are_right_beyond_those_that_are_kept() -> None:
    """Subjects of one token and of two, each more than ``ROUTES_MAX``."""
    router, got = Router(), list[bytes]()
    endpoint = Callback(router, failed=fail)
    for pattern in (b"1", b"*", b"7.x", b"*.x", b"9.>"):
        router.add(Subscription(endpoint, pattern, target=lambda *it: got.append(it[0])))
    wanted = 0
    for number in range(ROUTES_MAX + 10):
        wanted += router.publish(b"%d" % number, b"") + router.publish(b"%d.x" % number, b"")
    assert wanted == len(got) == 2 * (ROUTES_MAX + 10) + 3
    assert router.publish(b"1", b"") == 2
    assert router.publish(b"7.x", b"") == 2
    assert router.publish(b"9.x", b"") == 2
    assert router.publish(b"9.y", b"") == 1
    assert router.publish(b"7.y", b"") == 0


def test_routes_of_many_subscriptions_take_a_limited_memory() -> None:
    """A client with many subscriptions of all subjects, and one that publishes to ever new ones."""
    router = Router()
    endpoint = Callback(router, failed=fail)
    for number in range(2_000):
        queue = b"q" if number % 2 else b""
        router.add(Subscription(endpoint, b">", queue=queue, target=lambda *_: None))
    before = resident_bytes()
    for number in range(ROUTES_MAX // 4):
        assert len(router.matches(b"%d.x" % number)[0]) == 1_000
    assert resident_bytes() - before < 2 * ROUTES_BYTES_MAX


@given(st.integers(1, 2**63 - 1), st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_queue_group_gives_each_member_its_share(seed: int, members: int) -> None:
    router, got = Router(seed=seed), list[int]()
    endpoint = Callback(router, failed=fail)
    for member in range(members):
        subscription = Subscription(
            endpoint, b"a.>", queue=b"q", target=lambda *_, member=member: got.append(member)
        )
        router.add(subscription)
    for number in range(400):
        assert router.publish(b"a.%d" % number, b"") == 1
    assert all(got.count(member) > 400 / members / 2.5 for member in range(members))


def test_members_of_a_group_by_different_subjects_are_one_group() -> None:
    router, got = Router(), list[str]()
    endpoint = Callback(router, failed=fail)
    for pattern in (b"a.*", b"*.b", b"a.b", b">"):
        subscription = Subscription(endpoint, pattern, queue=b"q", target=lambda *_: got.append(""))
        router.add(subscription)
    assert [router.publish(b"a.b", b"") for _ in range(20)] == [1] * 20
    assert len(got) == 20


class Session:
    """Answers nothing: what a connection asks of its session is not asked here."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def connection_of(router: Router) -> ClientConnection:
    connection = ClientConnection(router)
    connection.session = Session()
    connection.verbose = connection.pedantic = False
    connection.is_open = True
    return connection


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from([b"", b"q"])), max_size=8
    ),
    st.integers(1, 6),
)
@settings(max_examples=200, deadline=None)
def test_subscriptions_that_end_in_a_delivery_end_for_themselves_alone(
    subscribed: list[tuple[int, int, bytes]], messages: int
) -> None:
    """Each has had as many messages as it may have; a queue group's messages go on to the others."""
    router = Router()
    connections = [connection_of(router) for _ in range(3)]
    left: dict[tuple[int, bytes], int] = {}
    groups: list[tuple[int, bytes]] = []
    for sid, (owner, most, queue) in enumerate(subscribed):
        name = b"%d" % sid
        connections[owner].subscribe(b"a.>" if sid % 2 else b"a.b", queue, name)
        if most:
            connections[owner].unsubscribe(name, most)
        if queue:
            groups.append((owner, name))
        left[owner, name] = most or messages + 1
    had: dict[tuple[int, bytes], int] = dict.fromkeys(left, 0)
    for _ in range(messages):
        alive = {key for key in left if had[key] < left[key]}
        plain = {key for key in alive if key not in groups}
        count = router.publish(b"a.b", b"")
        got = {
            (owner, line.split(b" ")[2])
            for owner, connection in enumerate(connections)
            for line in connection.take_output().split(b"\r\n")
            if line
        }
        in_group = {key for key in alive if key in groups}
        assert plain <= got
        assert len(got - plain) == bool(in_group)
        assert got <= alive
        assert count == len(got)
        for key in got:
            had[key] += 1
    assert len(router) == sum(had[key] < left[key] for key in left)


def test_target_may_end_others_in_the_midst_of_a_delivery() -> None:
    router, got = Router(), list[str]()
    endpoint = Callback(router, failed=fail)
    subscriptions: list[Subscription] = []

    def first(*_: bytes) -> None:
        got.append("first")
        for each in subscriptions:
            router.remove(each)

    subscriptions += [
        Subscription(endpoint, b"a", target=first),
        Subscription(endpoint, b"a", target=lambda *_: got.append("second")),
        Subscription(endpoint, b"a", queue=b"q", target=lambda *_: got.append("member")),
    ]
    for each in subscriptions:
        router.add(each)
    assert router.publish(b"a", b"") == 1
    assert got == ["first"]
    assert len(router) == 0


def test_source_is_the_outer_message_s_again_after_one_within_it() -> None:
    """What a target publishes has a source of its own, which is not that of those who come next."""
    router = Router()
    endpoint, source = Callback(router, failed=fail), Callback(router, failed=fail)
    seen: list[object] = []

    def target(*_: bytes) -> None:
        seen.append(router.source)
        router.publish(b"inner", b"")
        seen.append(router.source)

    for _ in range(2):
        router.add(Subscription(endpoint, b"outer", target=target))
    router.add(Subscription(endpoint, b"inner", target=lambda *_: seen.append(router.source)))
    router.publish(b"outer", b"", source=source)
    assert seen == [source, None, source] * 2


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_packed_replies_that_are_cut_are_answered_to_nobody(replies: bytes) -> None:
    router, got = Router(), list[bytes]()
    endpoint = Callback(router, failed=fail)
    router.add(Subscription(endpoint, b">", target=lambda *it: got.append(it[0])))
    try:
        wanted = acks_oracle.build_acks(replies, b"{", 0)
    except ValueError:
        with pytest.raises(ValueError, match="cut"):
            router.acknowledge(replies, b"{", 0)
        with pytest.raises(ValueError, match="cut"):
            router.respond(replies, b"")
        assert not got
    else:
        assert router.acknowledge(replies, b"{", 0) == wanted


def test_subscriptions_of_one_subject_end_in_a_time_that_grows_with_their_number() -> None:
    """However many there are: one client may have a million of them, and all end with it."""

    def seconds(count: int) -> float:
        router = Router()
        connection = connection_of(router)
        for sid in range(count):
            connection.subscribe(b"a", b"", b"%d" % sid)
        started = time.process_time()
        connection.close()
        assert len(router) == 0
        return time.process_time() - started

    seconds(1_000)
    few, many = seconds(5_000), seconds(80_000)
    assert many < max(few, 0.002) * 16 * 6


@pytest.mark.slow
def test_a_million_subscriptions_leave_nothing_behind() -> None:
    router, choose = Router(), random.Random(7)
    endpoint = Callback(router, failed=fail)

    def a_million() -> None:
        subscriptions = []
        for number in range(1_000_000):
            last = choose.choice((b"*", b">", b"x"))
            subject = b"orders.%d.%d.%b" % (number % 1_000, number, last)
            subscriptions.append(Subscription(endpoint, subject, target=lambda *_: None))
            router.add(subscriptions[-1])
            if number % 100 == 0:
                router.publish(subject, b"")
        choose.shuffle(subscriptions)
        for subscription in subscriptions:
            router.remove(subscription)

    a_million()
    gc.collect()
    before = resident_bytes()
    a_million()
    gc.collect()
    assert len(router) == 0
    assert router.matches(b"orders.1.1.x") == ([], [])
    assert resident_bytes() - before < GROWTH_BYTES_MAX


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
