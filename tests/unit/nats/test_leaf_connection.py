"""What a link tells, and what it does with what it is told."""

from typing import Any

import pytest

from streamlog.ingest.frames import IngestEndpoint, RecordCollector
from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.leaf_connection import LeafConnection
from streamlog.nats.router import Callback, Router, Subscription

Taken = tuple[str, bytes, bytes, bytes, bytes]


class Recorded:
    """A session that notes what a link reports."""

    def __init__(self) -> None:
        self.info: dict[str, Any] = {}
        self.reports: list[object] = []

    def ponged(self) -> None:
        self.reports.append("PONG")

    def informed(self, info: bytes) -> None:
        self.reports.append(info)

    def refused(self, words: bytes) -> None:
        self.reports.append(words)

    def violated(self, error: Exception) -> None:
        self.reports.append(error)

    def too_slow(self) -> None:
        self.reports.append("slow")

    def broken(self, error: OSError) -> None:
        self.reports.append(error)


class World:
    """A router with a subscriber of its own, and links."""

    def __init__(self) -> None:
        self.router = Router()
        self.taken: list[Taken] = []
        self.session = Recorded()
        """Of each link."""
        self.callback = Callback(self.router, failed=self._failed)

    def _failed(self, error: Exception) -> None:
        raise error

    def subscribe(self, subject: bytes, queue: bytes = b"", name: str = "a") -> Subscription:
        def take(*message: bytes) -> None:
            subject, reply, block, payload = message
            self.taken.append((name, subject, reply, block, payload))

        subscription = Subscription(self.callback, subject, queue=queue, target=take)
        self.router.add(subscription)
        return subscription

    def link(self, **options: Any) -> LeafConnection:
        link = LeafConnection(self.router, **options)
        link.session = self.session
        link.open()
        return link


@pytest.fixture
def world() -> World:
    return World()


def test_a_link_is_told_what_there_is_and_what_changes(world: World) -> None:
    first = world.subscribe(b"a.*")
    second = world.subscribe(b"a.*")
    link = world.link()
    assert link.take_output() == b"LS+ a.*\r\n"
    member = world.subscribe(b"b", b"q")
    other = world.subscribe(b"b", b"q")
    assert link.take_output() == b"LS+ b q 1\r\nLS+ b q 2\r\n"
    for subscription in (first, member):
        world.router.remove(subscription)
    assert link.take_output() == b"LS+ b q 1\r\n"
    for subscription in (second, other):
        world.router.remove(subscription)
    assert link.take_output() == b"LS- a.*\r\nLS- b q\r\n"


def test_nothing_goes_there_before_the_other_side_knows_what_is_wanted_here(world: World) -> None:
    """It would answer a request before it knows of the subscription that the answer is for."""
    link = LeafConnection(world.router)
    link.session = world.session
    world.subscribe(b"inbox.*")
    link.feed(b"LS+ a\r\nLS+ b\r\nLS+ c q 1\r\nLS+ a..b\r\nLS- b\r\nPONG\r\n")
    assert world.router.publish(b"a", b"x", reply=b"inbox.1") == 0
    assert link.take_output() == b""
    link.open()
    assert world.router.publish(b"b", b"x") == 0
    assert world.router.publish(b"a", b"x", reply=b"inbox.1") == 1
    assert world.router.publish(b"c", b"x") == 1
    assert link.take_output() == b"LS+ inbox.*\r\nLMSG a inbox.1 1\r\nx\r\nLMSG c | q 1\r\nx\r\n"
    link.close()
    assert len(world.router) == 1


def test_mark_has_passed_when_its_ping_is_answered(world: World) -> None:
    """Answers come in the order of the PINGs: those of the session are not taken for those of marks."""
    collector = RecordCollector(message_bytes_max=100)
    IngestEndpoint(world.router).subscribe(b"a", collector)
    link = world.link()
    link.take_output()
    link.expect_pongs(1)
    link.ping()
    assert world.router.mark() == 1
    link.ping()
    collector.from_mark = world.router.mark()
    assert (collector.from_mark, link.take_output()) == (2, b"PING\r\n" * 4)
    later = world.link()
    for pongs, reports in enumerate((0, 1, 2, 2, 3)):
        if pongs:
            link.feed(b"PONG\r\n")
        link.feed(b"LMSG a 1\r\nx\r\n")
        assert (collector.run.count, world.session.reports) == (0, ["PONG"] * reports)
    assert link.pings_outstanding == 1
    link.feed(b"PONG\r\nLMSG a 1\r\nx\r\n")
    assert (collector.run.count, world.session.reports) == (1, ["PONG"] * 3)
    later.feed(b"LMSG a 1\r\nx\r\n")  # it was sent after all marks that there were
    world.router.publish(b"a", b"x")
    assert collector.run.count == 3
    link.feed(b"PONG\r\n")  # that nobody has asked for
    assert (link.pings_outstanding, len(world.session.reports)) == (0, 4)
    link.close()
    world.router.mark()
    assert later.take_output().endswith(b"LS+ a\r\nPING\r\n")


def test_link_that_was_never_open_leaves_nothing_behind(world: World) -> None:
    link = LeafConnection(world.router)
    link.session = world.session
    link.feed(b"LS+ a\r\n")
    link.close()
    assert len(world.router) == 0


def test_what_is_wanted_there_goes_there_once(world: World) -> None:
    link = world.link()
    link.feed(b"LS+ a.*\r\nLS+ a.>\r\nLS+ a.1 q 3\r\n")
    assert world.router.publish(b"a.1", b"hello", reply=b"r") == 1
    assert link.take_output() == b"LMSG a.1 + r q 5\r\nhello\r\n"
    link.feed(b"LS- a.1 q\r\n")
    world.router.publish(b"a.1", b"x", block=b"NATS/1.0\r\n\r\n")
    assert link.take_output() == b"HMSG a.1 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
    link.feed(b"LS- a.*\r\nLS- a.>\r\nLS- a.>\r\n")
    assert world.router.publish(b"a.1", b"x") == 0
    assert link.take_output() == b""


def test_headers_are_left_out_where_the_other_side_knows_none(world: World) -> None:
    link = world.link()
    link.headers = False
    link.feed(b"LS+ a\r\n")
    world.router.publish(b"a", b"x", block=b"NATS/1.0\r\n\r\n", reply=b"r")
    assert link.take_output() == b"LMSG a r 1\r\nx\r\n"


def test_a_member_of_this_node_is_preferred(world: World) -> None:
    link = world.link()
    link.feed(b"LS+ work q 1\r\n")
    member = world.subscribe(b"work", b"q")
    link.take_output()
    world.router.publish(b"work", b"1")
    assert (len(world.taken), link.take_output()) == (1, b"")
    world.router.remove(member)
    link.take_output()
    world.router.publish(b"work", b"2")
    assert (len(world.taken), link.take_output()) == (1, b"LMSG work | q 1\r\n2\r\n")


def test_of_two_links_with_members_one_gets_the_message(world: World) -> None:
    links = [world.link(), world.link()]
    for link in links:
        link.feed(b"LS+ work q 1\r\n")
    for _ in range(200):
        world.router.publish(b"work", b"x")
    counts = [link.take_output().count(b"LMSG") for link in links]
    assert sum(counts) == 200
    assert min(counts) > 50


def test_what_a_link_brings_goes_to_no_link(world: World) -> None:
    link, other = world.link(), world.link()
    other.feed(b"LS+ a\r\nLS+ a q 1\r\n")
    world.subscribe(b"a")
    for each in (link, other):
        each.take_output()
    link.feed(b"LMSG a r 5\r\nhello\r\n")
    assert world.taken == [("a", b"a", b"r", b"", b"hello")]
    assert (link.take_output(), other.take_output()) == (b"", b"")


def test_the_other_side_chooses_the_queue_groups(world: World) -> None:
    world.subscribe(b"a", b"q1", "one")
    world.subscribe(b"a", b"q2", "two")
    world.subscribe(b"a", name="plain")
    link = world.link()
    link.feed(b"LMSG a | q2 1\r\n1\r\nLMSG a + r q1 q9 1\r\n2\r\nLMSG a r 1\r\n3\r\n")
    assert [(name, reply, payload) for name, _, reply, _, payload in world.taken] == [
        ("plain", b"", b"1"), ("two", b"", b"1"), ("plain", b"r", b"2"), ("one", b"r", b"2"),
        ("plain", b"r", b"3"),
    ]  # fmt: skip


def client_of(world: World) -> ClientConnection:
    client = ClientConnection(world.router)
    client.session = Recorded()  # type: ignore[assignment]  # it is asked nothing
    client.is_open = client.headers = client.no_responders = True
    client.verbose = client.pedantic = False
    return client


ACK = b"$JS.ACK.d.p1.s@1.c.1.2.3.4.5.0"


@pytest.mark.parametrize(
    ("reply", "seen"),
    [
        (ACK + b"@orders.eu", b"orders.eu 1 " + ACK),
        (ACK + b"@a@b", b"a@b 1 " + ACK),
        (b"$JS.ACK.s@1.c.1.2.3.4.5@x", b"x 1 $JS.ACK.s@1.c.1.2.3.4.5"),
        (b"$JS.ACK.s.c.1.2.3.4@x", b"in.1 1 $JS.ACK.s.c.1.2.3.4@x"),
        (ACK + b"@", b"in.1 1 " + ACK + b"@"),
        (ACK, b"in.1 1 " + ACK),
        (b"$JS.ACKS.1.2.3.4.5.6.7@x", b"in.1 1 $JS.ACKS.1.2.3.4.5.6.7@x"),
        (b"r@x", b"in.1 1 r@x"),
    ],
)
def test_client_sees_the_subject_after_an_ack_subject(
    world: World, reply: bytes, seen: bytes
) -> None:
    client = client_of(world)
    client.subscribe(b"in.*", b"", b"1")
    link = world.link()
    link.feed(b"LMSG in.1 %b 2\r\nhi\r\n" % reply)
    assert client.take_output() == b"MSG %b 2\r\nhi\r\n" % seen


def test_ack_that_comes_over_a_link_is_a_message_like_others(world: World) -> None:
    world.subscribe(b"$JS.ACK.d.>")
    world.link().feed(b"LMSG %b in.1 4\r\n+ACK\r\n" % ACK)
    assert world.taken == [("a", ACK, b"in.1", b"", b"+ACK")]


def test_message_with_a_shown_subject_reaches_a_client_of_another_node(world: World) -> None:
    other = World()
    client = client_of(other)
    client.subscribe(b"in.*", b"", b"7")
    client.unsubscribe(b"7", 2)
    ours, theirs = world.link(), other.link()
    ours.feed(theirs.take_output())
    assert world.router.interest(b"in.1") == 1
    for number in range(3):
        head = b"NATS/1.0\r\n\r\n" if number else b""
        count = world.router.deliver_as(b"in.1", b"orders.eu", b"x", reply=ACK, block=head)
        assert count == (number < 2)
        theirs.feed(ours.take_output())
        ours.feed(theirs.take_output())
    assert client.take_output() == (
        b"MSG orders.eu 7 %b 1\r\nx\r\nHMSG orders.eu 7 %b 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
        % (ACK, ACK)
    )
    assert world.router.interest(b"in.1") == 0


def test_rights_of_a_subscriber_are_those_for_the_shown_subject(world: World) -> None:
    client = client_of(world)
    client.subscribe(b"in.*", b"", b"1", lambda subject: subject == b"orders.us")
    for shown in (b"orders.us", b"orders.eu"):
        world.router.deliver_as(b"in.1", shown, b"", reply=ACK)
    assert client.take_output() == b"MSG orders.eu 1 %b 0\r\n\r\n" % ACK


def test_what_waits_to_be_written_is_that_of_the_slowest(world: World) -> None:
    world.subscribe(b"in.1")
    assert world.router.unwritten_bytes(b"in.1") == 0
    client, member, link = client_of(world), client_of(world), world.link()
    client.subscribe(b"in.1", b"", b"1")
    member.subscribe(b"in.*", b"q", b"1")
    link.take_output()
    for connection, subject, size in (
        (client, b"in.1", 10), (member, b"in.1", 20), (link, b"other", 40), (link, b"in.1", 50),
    ):  # fmt: skip
        before = world.router.unwritten_bytes(b"in.1")
        if connection is link:
            link.feed(b"LS+ %b\r\n" % subject)
            before = max(before, link.pending_bytes if subject == b"in.1" else 0)
        assert world.router.unwritten_bytes(b"in.1") == before
        connection.send(b"x" * size)
        wanted = before if subject == b"other" else connection.pending_bytes
        assert world.router.unwritten_bytes(b"in.1") == wanted
    client.sealed_bytes = 1_000
    assert world.router.unwritten_bytes(b"in.1") == 1_010


def test_node_that_delivers_holds_up_no_client_that_asked_for_it(world: World) -> None:
    """A request for messages is answered within its own delivery, and the one who asked reads on."""
    asking, slow = client_of(world), client_of(world)
    slow.pending_bytes_max = 200
    slow.subscribe(b"in", b"", b"1")

    def deliver(*_: bytes) -> None:
        world.router.deliver_as(b"in", b"orders", b"x" * 100, reply=ACK)

    world.router.add(Subscription(world.callback, b"next", target=deliver))
    asking.feed(b"PUB next 0\r\n\r\n")
    assert 100 < slow.pending_bytes < 200
    assert not asking.is_stalled
    assert world.router.stalled == []


def test_messages_come_in_any_pieces(world: World) -> None:
    world.subscribe(b">")
    said = b"LMSG a 3\r\n1\r\n\r\nHMSG b r 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\nLS+ c\r\n"
    for size in range(1, len(said)):
        link = world.link()
        link.take_output()
        world.taken.clear()
        for start in range(0, len(said), size):
            link.feed(said[start : start + size])
        assert world.taken == [
            ("a", b"a", b"", b"", b"1\r\n"),
            ("a", b"b", b"r", b"NATS/1.0\r\n\r\n", b"hi"),
        ]
        assert (link.take_output(), list(link.interest)) == (b"PONG\r\n", [(b"c", b"")])
        link.close()


@pytest.mark.parametrize(
    "said",
    [
        b"LMSG a\r\n", b"LMSG a x\r\n", b"LMSG a -1\r\n", b"LMSG a ? r q 1\r\n", b"HMSG a 5 4\r\n",
        b"LMSG a 1\r\nxx\r\n", b"LS+ a q\r\n", b"LS-\r\n", b"PUB a 1\r\n", b"\r\n",
        b"LMSG a 99999999999\r\n", b"x" * 70_000,
    ],
)  # fmt: skip
def test_what_no_server_says_ends_the_link(world: World, said: bytes) -> None:
    link = world.link(line_bytes_max=65_536)
    link.feed(said)
    (error,) = world.session.reports
    assert isinstance(error, Exception)
    link.feed(b"LS+ late\r\n")
    assert link.interest == {}


def test_interest_has_a_limit(world: World) -> None:
    link = world.link(interest_max=2)
    link.feed(b"LS+ a\r\nLS+ b\r\nLS+ a\r\n")
    assert world.session.reports == []
    link.feed(b"LS+ c\r\n")
    assert "more than 2 subjects" in str(world.session.reports[0])


def test_interest_in_what_is_no_subject_is_passed_over(world: World) -> None:
    link = world.link()
    link.feed(b"LS+ a..b\r\nLS+ >.a\r\nLS- a..b\r\nLS+ a\r\n")
    assert list(link.interest) == [(b"a", b"")]


def test_a_link_that_has_gone_wants_nothing(world: World) -> None:
    link = world.link()
    link.feed(b"LS+ a\r\n")
    link.close()
    assert world.router.publish(b"a", b"x") == 0
    world.subscribe(b"b")
    assert len(world.router) == 1


def test_answers_that_nothing_is_known_of_go_over_the_fallback(world: World) -> None:
    link = world.link()
    world.router.fallback = link
    world.router.reply(b"_INBOX.1", b"{}")
    assert world.router.acknowledge(b"\0\0\0\0\x04\0\0in1", b'{"seq":', 6) == b""
    assert link.take_output() == b'LMSG _INBOX.1 2\r\n{}\r\nLMSG in1 9\r\n{"seq":7}\r\n'
    assert world.router.publish(b"news", b"x") == 0
    assert link.take_output() == b""


def test_a_client_without_responders_here_may_have_some_over_a_link(world: World) -> None:
    client = client_of(world)
    client.subscribe(b"_INBOX.*", b"", b"1")
    link = world.link()
    link.take_output()
    client.feed(b"PUB svc _INBOX.1 0\r\n\r\n")
    assert client.take_output().startswith(b"HMSG _INBOX.1 1 ")
    link.feed(b"LS+ svc q 1\r\n")
    client.feed(b"PUB svc _INBOX.1 0\r\n\r\n")
    assert (client.take_output(), link.take_output()) == (b"", b"LMSG svc + _INBOX.1 q 0\r\n\r\n")
    link.feed(b"LMSG _INBOX.1 2\r\nok\r\n")
    assert client.take_output() == b"MSG _INBOX.1 1 2\r\nok\r\n"
