"""Which subjects a client may publish and subscribe to: lists of allowed and denied subjects with
nats-server's semantics. Pure: the time is given.

The rules:

- A list has subjects with wildcards. Without a list of allowed subjects everything is allowed; what is
  denied is so, however much is allowed.
- A message is published if its subject, taken literally, is allowed and not denied.
- A subscription is allowed if one allowed subject takes in everything that it could receive, and no
  denied subject does. A subscription to ``>`` where ``secret.>`` is denied overlaps without being taken
  in: it is allowed, and the deliveries of what is denied are dropped (``delivery_denies``).
- ``subject queue`` in a list of a subscriber is about the members of that queue group, whose name may
  have wildcards. Where allowed entries that take in the subscription name queues, a member of a group
  needs one of its own. A subscription without a group needs an entry without one.
- With ``ReplyLimit`` a client may answer where it may not publish: so many messages to the reply subject
  of each message that it received, for a while (``allow_responses``). Without a list of allowed subjects
  it may publish nothing else then.

Several ``PermissionRules`` may hold for one client, such as those of its JWT and those of the node's
settings; each of them must allow. ``SYSTEM_RULES`` always holds.

nats-server takes the wildcards of a subscription for literal tokens: where ``a.*`` is allowed it lets a
client subscribe to ``a.>``, which receives ``a.b.c`` as well. Here that is refused.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from streamlog.errors import InvalidSubject

REPLIES_MAX: Final = 16_384
"""Reply subjects remembered for one connection; beyond it the oldest one may not be answered."""
ANSWERS_MAX: Final = 256
"""Remembered answers of each kind for one connection; beyond it they are all found again."""
ANSWER_BYTES_MAX: Final = 256
"""An answer about a longer subject is found each time."""
SYSTEM_QUEUE: Final = b"_sys_"
"""The queue group of servers, which no client may join."""
_SYSTEM_HEAD: Final = b"$SYS."
_WHITE_SPACE: Final = frozenset(b"\t\n\f\r \0")


K = TypeVar("K")
V = TypeVar("V")


class ReplyLimit(NamedTuple):
    """How often and how long a received message may be answered. Negative numbers: without a limit."""

    messages_max: int = 1
    ttl_s: float = 120.0


class Taken(NamedTuple):
    """Which entries of a list match."""

    plain: bool
    """One without a queue group."""
    queues: tuple[bytes, ...]

    def is_for(self, queue: bytes | None) -> bool:
        """One with a queue group that is this one, or a pattern of it."""
        return queue is not None and any(
            queue == it or (_has_wildcard(it) and _takes_in(it.split(b"."), queue.split(b".")))
            for it in self.queues
        )


NOTHING: Final = Taken(False, ())


class SubjectList:
    """Entries by their tokens. A lookup costs the entries that begin as the subject does, not all."""

    __slots__ = ("_root", "entries")

    def __init__(self, entries: Iterable[str], *, with_queues: bool = False) -> None:
        """``with_queues``: an entry may be ``subject queue``. Raises InvalidSubject."""
        self.entries = tuple(entries)
        self._root = _Branch()
        for entry in self.entries:
            subject, queue = _entry(entry, with_queues=with_queues)
            self._root.add(subject.split(b"."), queue)

    def matching(self, subject: bytes) -> Taken:
        """Entries that match a message's subject. Tokens of it that look like wildcards are none."""
        return self._found(subject, is_pattern=False)

    def including(self, pattern: bytes) -> Taken:
        """Entries that match every subject that ``pattern`` matches."""
        return self._found(pattern, is_pattern=True)

    def overlaps(self, pattern: bytes) -> bool:
        """Whether some subject is matched by both an entry and ``pattern``."""
        return self._root.overlaps(pattern.split(b"."))

    def _found(self, subject: bytes, *, is_pattern: bool) -> Taken:
        plain, queues = False, set[bytes]()
        for end in self._root.ends(subject.split(b"."), is_pattern=is_pattern):
            plain |= end.plain
            queues |= end.queues
        return Taken(plain, tuple(queues)) if plain or queues else NOTHING


class _End:
    """The entries that end at a branch."""

    __slots__ = ("plain", "queues")

    def __init__(self) -> None:
        self.plain = False
        self.queues: set[bytes] = set()

    def add(self, queue: bytes | None) -> None:
        if queue is None:
            self.plain = True
        else:
            self.queues.add(queue)


class _Branch:
    """The entries that begin with the same tokens."""

    __slots__ = ("children", "end", "rest")

    def __init__(self) -> None:
        self.children: dict[bytes, _Branch] = {}
        """The wildcard ``*`` is one of them."""
        self.end: _End | None = None
        self.rest: _End | None = None
        """Entries that go on with ``>``."""

    def add(self, tokens: Sequence[bytes], queue: bytes | None) -> None:
        branch = self
        for token in tokens:
            if token == b">":
                branch.rest = branch.rest or _End()
                branch.rest.add(queue)
                return
            branch = branch.children.setdefault(token, _Branch())
        branch.end = branch.end or _End()
        branch.end.add(queue)

    def ends(self, tokens: Sequence[bytes], *, is_pattern: bool) -> list[_End]:
        """A level at a time. Each branch is reached by one way only, so this costs the entries."""
        found: list[_End] = []
        branches = [self]
        for token in tokens:
            found += [it.rest for it in branches if it.rest is not None]
            if is_pattern and token == b">":
                return found
            keys = (b"*",) if token == b"*" else (token, b"*")
            branches = [it.children[key] for it in branches for key in keys if key in it.children]
        return found + [it.end for it in branches if it.end is not None]

    def overlaps(self, tokens: Sequence[bytes]) -> bool:
        branches = [self]
        for token in tokens:
            if any(it.rest is not None for it in branches):
                return True
            if token == b">":
                return any(it.children for it in branches)
            if token == b"*":
                branches = [child for it in branches for child in it.children.values()]
            else:
                keys = token, b"*"
                branches = [
                    it.children[key] for it in branches for key in keys if key in it.children
                ]
        return any(it.end is not None for it in branches)


class PermissionRules:
    """Immutable; connections share it."""

    __slots__ = (
        "publish_allow",
        "publish_deny",
        "replies",
        "subscribe_allow",
        "subscribe_deny",
    )

    def __init__(
        self,
        *,
        publish_allow: Iterable[str] | None = None,
        publish_deny: Iterable[str] = (),
        subscribe_allow: Iterable[str] | None = None,
        subscribe_deny: Iterable[str] = (),
        replies: ReplyLimit | None = None,
    ) -> None:
        """None: everything is allowed, but with ``replies`` nothing else is published. An empty list
        allows nothing. Raises InvalidSubject.
        """
        if publish_allow is None and replies is not None:
            publish_allow = ()
        self.publish_allow = None if publish_allow is None else SubjectList(publish_allow)
        self.publish_deny = SubjectList(publish_deny)
        self.subscribe_allow = (
            None if subscribe_allow is None else SubjectList(subscribe_allow, with_queues=True)
        )
        self.subscribe_deny = SubjectList(subscribe_deny, with_queues=True)
        self.replies = replies

    def allows_publish(self, subject: bytes) -> bool:
        if self.publish_allow is not None and not self.publish_allow.matching(subject).plain:
            return False
        return not self.publish_deny.matching(subject).plain

    def allows_subscription(self, subject: bytes, queue: bytes | None) -> bool:
        if self.subscribe_allow is not None:
            taken = self.subscribe_allow.including(subject)
            by_group = queue is not None and bool(taken.queues)
            if not (taken.is_for(queue) if by_group else taken.plain):
                return False
        denied = self.subscribe_deny.including(subject)
        return not (denied.plain or denied.is_for(queue))

    def denies_delivery(self, subject: bytes, queue: bytes | None) -> bool:
        denied = self.subscribe_deny.matching(subject)
        return denied.plain or denied.is_for(queue)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PermissionRules):
            return NotImplemented
        return self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    @property
    def _value(self) -> tuple[object, ...]:
        lists = (
            self.publish_allow, self.publish_deny, self.subscribe_allow, self.subscribe_deny,
        )  # fmt: skip
        return (*(None if it is None else it.entries for it in lists), self.replies)


class SubjectPermissions:
    """Of one connection, by all rules that hold for it."""

    def __init__(self, rules: Iterable[PermissionRules], now_s: Callable[[], float]) -> None:
        """``now_s``: a monotonic clock. ``SYSTEM_RULES`` holds in any case."""
        rules = tuple(rules)
        self.is_free = not rules
        """Only ``SYSTEM_RULES`` holds: each subject may be used that is not below ``$SYS``."""
        self._held = tuple(
            _HeldRules(it, None if it.replies is None else _Replies(it.replies, now_s))
            for it in (SYSTEM_RULES, *rules)
        )
        self._refusals: dict[bytes, tuple[_HeldRules, ...]] = {}
        """By subject of a publish, the rules that do not allow it."""
        self._denials: dict[tuple[bytes, bytes | None], bool] = {}
        """By subject of a delivery and queue group."""

    @property
    def tracks_replies(self) -> bool:
        """``delivered`` has to be called for messages with a reply subject."""
        return any(it.replies is not None for it in self._held)

    def may_publish(self, subject: bytes) -> bool:
        """Of a message that comes now: one to a reply subject is counted."""
        if self.is_free:
            return not subject.startswith(_SYSTEM_HEAD)
        refusing = self._refusing(subject)
        return not refusing or all(
            it.replies is not None and it.replies.spend(subject) for it in refusing
        )

    def may_subscribe(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Whether there may be such a subscription. Where ``needs_filter`` says so, each of its
        deliveries is asked about.
        """
        if queue == SYSTEM_QUEUE:
            return False
        return all(it.rules.allows_subscription(subject, queue) for it in self._held)

    def needs_filter(self, subject: bytes) -> bool:
        """Whether a subscription might receive what is denied."""
        return any(it.rules.subscribe_deny.overlaps(subject) for it in self._held)

    def delivery_denies(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Whether a message on ``subject`` must not be delivered to a subscription, in ``queue``."""
        key = subject, queue
        found = self._denials.get(key)
        if found is None:
            found = any(it.rules.denies_delivery(subject, queue) for it in self._held)
            _remember(self._denials, key, found, len(subject))
        return found

    def denied_deliveries(
        self, subject: bytes, queue: bytes | None = None
    ) -> Callable[[bytes], bool] | None:
        """``delivery_denies`` for a subscription that is allowed; None: it receives nothing that is
        denied.
        """
        if not self.needs_filter(subject):
            return None
        return lambda delivered: self.delivery_denies(delivered, queue)

    def delivered(self, reply: bytes) -> None:
        """A message with this reply subject went to the client, which may answer it."""
        for each in self._refusing(reply):
            if each.replies is not None:
                each.replies.expect(reply)

    def _refusing(self, subject: bytes) -> "tuple[_HeldRules, ...]":
        found = self._refusals.get(subject)
        if found is None:
            found = tuple(it for it in self._held if not it.rules.allows_publish(subject))
            _remember(self._refusals, subject, found, len(subject))
        return found


class _HeldRules(NamedTuple):
    """Rules that hold for one connection."""

    rules: PermissionRules
    replies: "_Replies | None"


def _remember(answers: dict[K, V], key: K, answer: V, size: int) -> None:
    if size > ANSWER_BYTES_MAX:
        return
    if len(answers) >= ANSWERS_MAX:
        answers.clear()
    answers[key] = answer


class _Replies:
    """Reply subjects of messages that a client received, the oldest first."""

    def __init__(self, limit: ReplyLimit, now_s: Callable[[], float]) -> None:
        self._limit = limit
        self._now_s = now_s
        self._expected: OrderedDict[bytes, _Expected] = OrderedDict()

    def expect(self, reply: bytes) -> None:
        now_s = self._now_s()
        self._expected[reply] = _Expected(now_s)
        self._expected.move_to_end(reply)
        while self._expected:
            oldest, known = next(iter(self._expected.items()))
            if len(self._expected) <= REPLIES_MAX and not self._is_over(known, now_s):
                break
            del self._expected[oldest]

    def spend(self, reply: bytes) -> bool:
        """Whether it may be answered; one answer fewer then."""
        known = self._expected.get(reply)
        if known is None:
            return False
        known.answers += 1
        most = self._limit.messages_max
        if self._is_over(known, self._now_s()) or 0 <= most < known.answers:
            del self._expected[reply]
            return False
        if known.answers == most:
            del self._expected[reply]
        return True

    def _is_over(self, known: "_Expected", now_s: float) -> bool:
        return 0 <= self._limit.ttl_s < now_s - known.since_s


class _Expected:
    __slots__ = ("answers", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.answers = 0


def _entry(entry: str, *, with_queues: bool) -> tuple[bytes, bytes | None]:
    match entry.split():
        case [subject]:
            return _checked(subject), None
        case [subject, queue] if with_queues:
            return _checked(subject), _checked(queue)
    form = "a subject, or a subject, a space and a queue group" if with_queues else "one subject"
    raise InvalidSubject(f"{entry[:80]!r}: write {form}")


def _checked(subject: str) -> bytes:
    """As nats-server has it: a wildcard is a whole token; ``a*`` is a token like any other."""
    data = subject.encode(errors="surrogateescape")
    tokens = data.split(b".")
    if not all(tokens) or b">" in tokens[:-1] or not _WHITE_SPACE.isdisjoint(data):
        raise InvalidSubject(f"{subject[:80]!r} is no subject")
    return data


def _has_wildcard(subject: bytes) -> bool:
    return not {b"*", b">"}.isdisjoint(subject.split(b"."))


def _takes_in(wide: Sequence[bytes], narrow: Sequence[bytes]) -> bool:
    """Whether the pattern ``wide`` matches whatever ``narrow`` does."""
    for at, wanted in enumerate(wide):
        if wanted == b">":
            return len(narrow) > at
        if at >= len(narrow) or narrow[at] == b">" or wanted not in (b"*", narrow[at]):
            return False
    return len(wide) == len(narrow)


SYSTEM_RULES: Final = PermissionRules(publish_deny=["$SYS.>"], subscribe_deny=["$SYS.>"])
"""The subjects of servers, which no client uses."""
