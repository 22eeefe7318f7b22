"""Which server of NATS is tried next."""

import random

from streamlog.ingest.nats.server_link import ServerPool


def pool(*addresses: str) -> ServerPool:
    return ServerPool(addresses, rng=random.Random(1))


def places(servers: ServerPool, count: int) -> list[str]:
    return [servers.next().place for _ in range(count)]


def test_each_in_turn() -> None:
    servers = pool("nats://a", "tls://b:4443", "c:1")
    first = places(servers, 3)
    assert sorted(first) == ["a:4222", "b:4443", "c:1"]
    assert places(servers, 3) == first


def test_one_that_has_ended_without_a_word_comes_first_once() -> None:
    servers = pool("nats://a", "nats://b", "nats://c")
    servers.current = servers.next()
    servers.returns = True
    assert servers.next() is servers.current
    assert servers.next() is not servers.current


def test_what_servers_tell_of_is_used_for_as_long_as_they_tell_it() -> None:
    servers = pool("nats://a")
    a = servers.next()
    servers.discover(["A:4222", "b:1", "b:1", "[::1]:2", "[::1", "c:x", ""], a, is_encrypted=False)
    assert sorted(places(servers, 3)) == ["[::1]:2", "a:4222", "b:1"]
    servers.discover([], a, is_encrypted=False)
    assert len(set(places(servers, 6))) == 3
    b = next(it for it in (servers.next() for _ in range(3)) if it.place == "b:1")
    servers.discover(
        ["c:1"], b, is_encrypted=False
    )  # b itself stays for as long as it is connected
    assert sorted(places(servers, 3)) == ["a:4222", "b:1", "c:1"]


def test_an_address_without_a_name_has_the_certificate_of_the_one_that_told_of_it() -> None:
    servers = pool("tls://nats.example")
    known = servers.next()
    servers.discover(["10.0.0.1:4222", "other.example:1"], known, is_encrypted=True)
    names = {it.place: it.tls_name for it in (servers.next() for _ in range(3))}
    assert names == {
        "nats.example:4222": "",
        "10.0.0.1:4222": "nats.example",
        "other.example:1": "",
    }
