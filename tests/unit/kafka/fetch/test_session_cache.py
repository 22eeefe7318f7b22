"""Which fetch sessions are kept."""

import itertools
import random

from streamlog.authn.principal import Principal
from streamlog.kafka.fetch.fetch_session import FetchCaller, FetchSession, Owner
from streamlog.kafka.fetch.session_cache import SESSION_ID_MAX, STALE_MS, SessionCache
from streamlog.model import NodeId
from streamlog.wire.fetch import FetchRequest

CONSUMER = NodeId(-1)
ALICE, MALLORY = Principal.user("alice"), Principal.user("mallory")
OWNER = (ALICE, "10.0.0.1")
OTHERS = [(MALLORY, "10.0.0.1"), (ALICE, "10.0.0.2")]


class Kept(FetchSession):
    """A session that says of itself how many partitions it has."""

    size = 10

    def __init__(
        self, replica_id: NodeId = CONSUMER, size: int = 10, *, owner: Owner = OWNER
    ) -> None:
        super().__init__(FetchCaller(replica_id, -1, "", owner))
        self.size = size


def use(cache: SessionCache, session_id: int, owner: Owner, now_ms: int) -> FetchSession | None:
    """As the next request of the session would, from ``owner``."""
    slot = cache._kept.get(session_id)
    caller, epoch = FetchCaller(CONSUMER, -1, "", owner), 1
    if slot is not None:
        caller, epoch = slot.session.caller._replace(owner=owner), slot.session.epoch
    request = FetchRequest([], 0, 0, 0, session_id=session_id, session_epoch=epoch)
    found = cache.use(request, caller, now_ms, by_id=False)
    return found if isinstance(found, FetchSession) else None


def follower(node_id: int, size: int = 10) -> Kept:
    return Kept(NodeId(node_id), size)


def cache_of(slots: int) -> SessionCache:
    return SessionCache(slots, random_id=itertools.count(1).__next__)


def test_a_session_is_used_until_it_is_removed() -> None:
    cache, session = cache_of(2), Kept()
    session_id = cache.admit(session, 0)
    assert session_id is not None
    assert use(cache, session_id, OWNER, 5) is session
    cache.remove(session_id, OWNER)
    assert session.closed
    assert use(cache, session_id, OWNER, 5) is None
    cache.remove(session_id, OWNER)


def test_an_id_is_not_given_twice() -> None:
    ids = iter([3, 3, 3, 4])
    cache = SessionCache(5, random_id=ids.__next__)
    assert (cache.admit(Kept(), 0), cache.admit(Kept(), 0)) == (3, 4)


def test_a_stale_session_goes_first_the_one_unused_for_longest() -> None:
    cache = cache_of(3)
    sessions = [Kept(size=size) for size in (30, 20, 10)]
    ids = [cache.admit(it, 0) or 0 for it in sessions]
    use(cache, ids[1], OWNER, 1)
    use(cache, ids[2], OWNER, 2)
    assert cache.admit(Kept(size=1), STALE_MS + 1)
    assert [it.closed for it in sessions] == [True, False, False]


def test_a_young_consumer_is_spared_by_consumers() -> None:
    cache, session = cache_of(1), Kept(size=1)
    cache.admit(session, 0)
    assert cache.admit(Kept(size=100), STALE_MS) is None
    assert (len(cache), session.closed) == (1, False)


def test_the_smaller_of_old_ones_goes_for_one_that_is_no_smaller() -> None:
    cache = cache_of(2)
    large, small = Kept(size=20), Kept(size=10)
    ids = [cache.admit(it, 0) or 0 for it in (large, small)]
    later = STALE_MS + 1
    for session_id in ids:
        use(cache, session_id, OWNER, later)
    assert cache.admit(Kept(size=9), later) is None
    assert cache.admit(Kept(size=10), later)
    assert (large.closed, small.closed) == (False, True)


def test_followers_put_out_consumers_and_never_the_other_way_round() -> None:
    cache, young = cache_of(1), Kept(size=1_000)
    cache.admit(young, 0)
    replica = follower(1, size=1)
    replica_session = cache.admit(replica, 1)
    assert young.closed
    later = 2 * STALE_MS
    use(cache, replica_session or 0, OWNER, later)
    assert cache.admit(Kept(size=1_000), later) is None
    assert not replica.closed
    assert cache.admit(follower(2, size=1), later), "an old one, by its like"


def test_a_follower_has_one_session() -> None:
    cache = cache_of(10)
    before, other, after = follower(1), follower(2), follower(1)
    for session in (before, other, after):
        cache.admit(session, 0)
    assert [it.closed for it in (before, other, after)] == [True, False, False]


def test_no_slots_no_sessions() -> None:
    assert cache_of(0).admit(follower(1), 0) is None


def test_nobody_else_goes_on_with_a_session_or_ends_it() -> None:
    cache, session = cache_of(2), Kept()
    session_id = cache.admit(session, 0)
    assert session_id is not None
    for other in OTHERS:
        assert use(cache, session_id, other, 5) is None
        cache.remove(session_id, other)
    assert not session.closed
    assert use(cache, session_id, OWNER, 5) is session


def test_ids_cannot_be_foretold() -> None:
    """Of a seeded generator, whoever has seen some knows all that follow."""
    caches = SessionCache(), SessionCache()
    random.seed(7)
    first = [caches[0].admit(Kept(), 0) for _ in range(8)]
    random.seed(7)
    second = [caches[1].admit(Kept(), 0) for _ in range(8)]
    assert not {*first} & {*second}
    assert all(it is not None and 0 < it <= SESSION_ID_MAX for it in first + second)


def test_who_has_more_than_half_makes_room_for_others_and_nobody_for_that_one() -> None:
    cache = cache_of(4)
    hog = [Kept(size=1_000, owner=OTHERS[0]) for _ in range(3)]
    for it in hog:
        cache.admit(it, 0)
    quiet = Kept(size=1)
    cache.admit(quiet, 0)
    assert cache.admit(Kept(size=5_000, owner=OTHERS[0]), STALE_MS) is None
    assert cache.admit(Kept(size=1), 1) is not None
    assert [it.closed for it in hog] == [True, False, False]
    assert not quiet.closed


def limited(partitions_max: int) -> SessionCache:
    return SessionCache(100, partitions_max=partitions_max, random_id=itertools.count(1).__next__)


def test_partitions_have_a_limit_over_all_sessions() -> None:
    cache = limited(100)
    assert cache.admit(Kept(size=101), 0) is None
    assert cache.admit(Kept(size=60), 0)
    assert cache.admit(Kept(size=41), 1) is None, "the owner's own sessions make no room for it"
    assert cache.admit(Kept(size=40), 1)


def test_who_has_most_makes_room_for_others() -> None:
    cache = limited(100)
    sessions = [Kept(size=30, owner=OWNER) for _ in range(3)]
    for now_ms, session in enumerate(sessions):
        cache.admit(session, now_ms)
    other, another = Kept(size=25, owner=OTHERS[0]), Kept(size=80, owner=OTHERS[1])
    assert cache.admit(other, 5)
    assert [it.closed for it in sessions] == [True, False, False], "unused for longest"
    assert cache.admit(another, 6) is None, "it would have more than anybody else"
    assert not other.closed


def test_a_session_that_grows_is_counted_as_it_is() -> None:
    cache = limited(100)
    session, other = Kept(size=50), Kept(size=50, owner=OTHERS[0])
    session_id = cache.admit(session, 0) or 0
    assert cache.admit(other, 0)
    session.size = 51
    cache.changed(session_id)
    assert (session.closed, other.closed) == (True, False)
    assert use(cache, session_id, OWNER, 1) is None
    assert cache.admit(Kept(size=50), 1)
    other.size = 1
    cache.changed(2)
    assert cache.admit(Kept(size=49), 1), "what is forgotten makes room"
    cache.changed(77)


def test_a_session_that_grows_makes_those_leave_who_have_more() -> None:
    cache = limited(100)
    session, hog = Kept(size=10), Kept(size=90, owner=OTHERS[0])
    session_id = cache.admit(session, 0) or 0
    assert cache.admit(hog, 0)
    session.size = 20
    cache.changed(session_id)
    assert (session.closed, hog.closed) == (False, True)


def test_followers_are_not_counted() -> None:
    cache = limited(10)
    assert cache.admit(follower(1, size=1_000), 0)
    assert cache.admit(Kept(size=10), 0)
    assert cache.admit(follower(2, size=1_000), 0)
