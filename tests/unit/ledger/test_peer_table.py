from streamlog.ledger.core.channel_follower import ASKED_MAX, PeerBounds, PeerTable


def table(*names: str) -> PeerTable:
    made = PeerTable("me", lapse=PeerBounds(100, 1_000), lie=PeerBounds(30_000, 100_000))
    made.replace(names)
    return made


def test_a_node_is_not_its_own_peer() -> None:
    assert set(table("a", "me").names) == {"a"}


def test_who_lapses_is_avoided_briefly_and_forgiven_with_an_answer() -> None:
    peers = table("a")
    assert [peers.lapsed("a", 0) for _ in range(8)] == [100, 150, 225, 337, 506, 759, 1000, 1000]
    assert peers.usable(999) == []
    assert peers.usable_at_ms() == 1_000
    peers.answered("a")
    assert peers.lapsed("a", 2_000) == 100


def test_who_lies_is_avoided_for_long_whatever_it_answers() -> None:
    peers = table("a", "b")
    assert peers.lied("a", 0) == 30_000
    peers.answered("a")
    assert peers.usable(29_999) == ["b"]
    assert peers.lied("a", 30_000) == 45_000
    peers.kept_word("a")
    assert peers.lied("a", 80_000) == 30_000


def test_a_short_avoidance_does_not_end_a_long_one() -> None:
    peers = table("a")
    peers.lied("a", 0)
    peers.lapsed("a", 10)
    assert peers.usable_at_ms() == 30_000


def test_what_is_known_of_those_who_stay_is_kept() -> None:
    peers = table("a", "b")
    peers.lied("a", 0)
    peers.replace(["a", "c"])
    assert peers.usable(1) == ["c"]
    peers.lied("b", 0)  # gone by now
    assert set(peers.names) == {"a", "c"}


def test_all_have_their_turn() -> None:
    peers = table(*(f"p{i}" for i in range(12)))
    asked = [peers.usable(0) for _ in range(12)]
    assert all(len(names) == ASKED_MAX for names in asked)
    assert {names[0] for names in asked} == set(peers.names)


def test_a_pardoned_peer_may_be_asked_at_once() -> None:
    peers = table("a")
    peers.lied("a", 0)
    peers.pardon("a")
    assert peers.usable(0) == ["a"]
