"""Subscriptions and where messages go, compiled.

Everything that brings or takes messages in a node is an endpoint: a client of the port, the ingest, the
management API, a link to other servers. The router has all their subscriptions::

    router = Router()
    router.add(Subscription(endpoint, b"orders.>"))
    router.publish(b"orders.eu", b"...", reply=b"_INBOX.1")   # to each subscription that matches

**Links.** A link to another server or node is an endpoint. Its subscriptions are those of the other side. A
message of this node's client goes to this node's subscriptions, and once over each link that has a matching
one. A message that comes over a link goes to this node's subscriptions alone. Each node has a link to each other
node, so a message takes one hop and never a circle. A queue group with a member at this node gets the message
here; otherwise the message names the group to one link.

A subscription matches as NATS's do: ``*`` is one token, ``>`` is one or more at the end. Of each queue group
one member gets a message.

**Marks.** A connection may hold back what was sent long ago. ``mark`` sends a PING over each connection that brings
messages to this node; the answer to it comes behind all that the other side had sent before. So what comes after
mark N has come back over its connection was sent after ``mark`` returned N, or at least after the PING was read.
Each message says which mark had come back before it; one of this node's own clients comes after all of them.

**Turns.** What is readable in one turn of the event loop is gathered: ``begin_turn``, any number of
deliveries, ``end_turn``. An endpoint takes or writes what it got at the end of the turn. Endpoints that take
messages come first, since they make answers; those that write to sockets come last, each once, unless much has
gathered for one before: see ``write_early``. Outside of a turn ``wake`` is called at the first delivery, and has
``end_turn`` called soon.
"""

from collections.abc import Callable
from typing import Any, Final

SOURCES: int
ROUTES_MAX: Final[int]
"""Results of matching that are kept, by subject and by prefix."""
ROUTES_BYTES_MAX: Final[int]
"""Of memory for them, about: each may have many subscriptions, or a long subject."""

class Endpoint:
    """Takes messages, or brings them, or both."""

    is_stalled: bool
    """What it brings waits for those that it is for."""

    @property
    def router(self) -> Router: ...

class Callback(Endpoint):
    """Hands each message to a function, its subscription's target: ``target(subject, reply, block, payload)``.

    ``failed`` is called with what the function raises; others must go on. ``sees_shown``: a message that a
    consumer delivers has the subject under which it is stored, as a client sees it; else that by which it came.
    """

    def __init__(
        self, router: Router, *, failed: Callable[[Exception], None], sees_shown: bool = False
    ) -> None: ...

class Subscription:
    """A subject, and the endpoint that takes its messages.

    ``target``: for the endpoint; of a client's connection, what a subject is denied by.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        subject: bytes,
        *,
        queue: bytes = b"",
        sid: bytes = b"",
        target: Any = None,
    ) -> None: ...
    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def subject(self) -> bytes: ...
    @property
    def queue(self) -> bytes:
        """Empty: it is in no queue group."""

    @property
    def sid(self) -> bytes: ...
    @property
    def target(self) -> Any: ...

class DeliveryTrace:
    """Where one message goes that a client of the port publishes."""

    refusal: str
    """Why its publisher may not publish it; empty: it may."""

    def __init__(self, *, is_only: bool = False) -> None:
        """``is_only``: the message goes nowhere; it is only found where it would go."""

    @property
    def is_only(self) -> bool: ...
    @property
    def deliveries(self) -> list[tuple[Subscription | Endpoint, bool]]:
        """Subscriptions of this node, and links; True: not delivered, since the publisher wants no echo."""

class Router:
    """All subscriptions of a node. Not thread-safe; all is on one event loop."""

    wake: Callable[[], None] | None
    """Called at the first delivery outside of a turn."""

    failed: Callable[[Exception], None] | None
    """Called with what an endpoint raises at the end of a turn, so that the others go on; None: it is raised."""
    stalled: list[tuple[Endpoint, Endpoint]]
    """What has brought messages to a connection that is behind with its reading, and that connection."""
    fallback: Endpoint | None
    """A link over which answers go that no subscription is known for."""

    def __init__(self, *, seed: int = 1) -> None:
        """``seed``: of the choice among the members of a queue group."""

    def __len__(self) -> int:
        """How many subscriptions there are."""

    @property
    def generation(self) -> int:
        """Grows with each subscription that comes or goes."""

    def add(self, subscription: Subscription) -> None:
        """Raises InvalidRequest for a subject that nothing can be subscribed to by."""

    def remove(self, subscription: Subscription) -> None:
        """Nothing is delivered to it any more. Does nothing at the second call."""

    @property
    def source(self) -> Endpoint | None:
        """What brought the message that is being delivered; None: the node itself."""

    def matches(self, subject: bytes) -> tuple[list[Subscription], list[list[Subscription]]]:
        """The plain subscriptions of a subject, and its queue groups; those of this node."""

    def publish(
        self,
        subject: bytes,
        payload: bytes,
        *,
        reply: bytes = b"",
        block: bytes = b"",
        source: Endpoint | None = None,
        echo: bool = False,
    ) -> int:
        """To how many endpoints the message went. ``block``: the headers, from ``NATS/1.0`` to the empty line.
        ``source``: in whose name it is published; ``echo``: whether that gets it as well.
        """

    def deliver_as(
        self,
        subject: bytes,
        shown: bytes,
        payload: bytes,
        *,
        reply: bytes = b"",
        block: bytes = b"",
    ) -> int:
        """To how many endpoints a message went that is routed by ``subject``, while clients see it with the
        subject ``shown``, as JetStream delivers stored messages to inboxes. Parts of this node see ``subject``:
        a stream that stores it must not take it for another message of ``shown``. Over a link it has the reply
        ``<reply>@<shown>``. The other side takes that apart where ``reply`` is an ack subject: it begins with
        ``$JS.ACK.``, has eight dots or more, and no ``@`` after the eighth.
        """

    def interest(self, subject: bytes, *, queue: bytes = b"") -> int:
        """How many subscriptions of clients, of this node and behind links, match a subject now; parts of this node
        that see what clients see are clients here. ``queue``: only those in this queue group. It may be another
        number once ``generation`` has grown.
        """

    def tell_change(self, watcher: Callable[[], None]) -> None:
        """Have it called once, when the next subscription comes or goes, in the middle of that."""

    def unwritten_bytes(self, subject: bytes) -> int:
        """The largest number of bytes that wait to be written at one of the connections to which a message of
        this subject may go now.
        """

    def tell_clients(self, subject: bytes, payload: bytes, *, block: bytes = b"") -> None:
        """Publish to the clients of this node's port, and to nothing else: where the same message comes back
        to the node by way of NATS, it would be stored twice.
        """

    def reply(self, subject: bytes, payload: bytes, *, block: bytes = b"") -> None:
        """Publish an answer."""

    def attach(self, link: Endpoint) -> None:
        """Tell a link of all subscriptions of this node, and of each change. Marks go over it, too."""

    def detach(self, link: Endpoint) -> None:
        """It has gone; its own subscriptions are to be removed."""

    @property
    def marks(self) -> int:
        """How many there were."""

    def mark(self) -> int:
        """Send a mark over each connection that has joined; its number."""

    def join_marks(self, connection: Endpoint) -> None:
        """A new connection brings messages that may be stored."""

    def leave_marks(self, connection: Endpoint) -> None:
        """It has gone."""

    def acknowledge(self, replies: bytes, head: bytes, base_offset: int) -> bytes:
        """Give a positive ack to each packed reply; its ``seq`` is the offset + 1.

        ``head`` is what stands before it, of ``pub_ack_format.ack_head``. Returns publications (``PUB``
        lines) of the acks that are not for the router. Raises ValueError for replies that are cut, and for an
        offset that has no sequence.
        """

    def respond(self, replies: bytes, payload: bytes) -> bytes:
        """Publish ``payload`` at each packed reply, also returning the rest as publications."""

    def begin_turn(self) -> None:
        """Until ``end_turn`` endpoints gather what comes."""

    def write_early(self, size: int) -> None:
        """Have each endpoint to which at least ``size`` bytes are to be sent write them now, within the turn: those who
        read them work while the turn goes on.
        """

    def end_turn(self) -> None:
        """Have each endpoint take, or write, what this turn brought: first those that make answers."""
