"""kcat at a node behind TLS: in by each mechanism, and nothing for whoever lacks something."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.certificate_authority import Issued
from tests.guarded_node import ORDERS, SECRET, SealedNode, sealed_node
from tests.security.kcat import (
    PROGRAM,
    Kcat,
    Way,
    by_password,
    by_token,
    by_unsigned_token,
    fetches_tokens,
    token_endpoint,
)

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="kcat is not on PATH"),
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]
PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
Ways = Callable[..., Way]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SealedNode]:
    with sealed_node(tmp_path_factory.mktemp("sealed")) as node:
        yield node


@pytest.fixture(scope="module")
def kcat(sealed: SealedNode) -> Kcat:
    return Kcat(sealed.kafka)


@pytest.fixture(scope="module")
def tokens() -> Iterator[dict[str, str]]:
    """Where tokens are to be had, by whose they are."""
    with (
        token_endpoint(sub="alice") as alice,
        token_endpoint(sub="mallory") as mallory,
        token_endpoint(sub="alice", aud="somebody else") as wrong,
    ):
        yield {"alice": alice, "mallory": mallory, "wrong": wrong}


def by_certificate(ca: Path, own: Issued | None) -> Way:
    shown = {}
    if own is not None:
        shown = {"ssl.certificate.location": str(own.cert), "ssl.key.location": str(own.key)}
    return {"security.protocol": "SSL", "ssl.ca.location": str(ca), **shown}


@pytest.fixture(scope="module")
def way(sealed: SealedNode, tokens: dict[str, str]) -> Ways:
    """Of a user by a mechanism."""

    def way(mechanism: str, user: str) -> Way:
        if mechanism == "OAUTHBEARER":
            if not fetches_tokens():
                pytest.skip("this kcat's librdkafka was built without libcurl: no OAUTHBEARER")
            return by_token(tokens[user], sealed.ca)
        if mechanism == "mTLS":
            return by_certificate(sealed.ca, sealed.certificates[user])
        return by_password(mechanism, user, f"{user}-secret", sealed.ca)

    return way


@pytest.mark.parametrize("mechanism", [*PASSWORDS, "OAUTHBEARER", "mTLS"])
def test_who_is_known_lists_writes_and_reads(
    sealed: SealedNode, kcat: Kcat, way: Ways, mechanism: str
) -> None:
    alice = way(mechanism, "alice")
    assert kcat.topics(alice) == {ORDERS}
    written = [f"{mechanism} {number}".encode() for number in range(3)]
    before = sealed.high_watermark(ORDERS)
    assert kcat.produce(alice, ORDERS, *written).code == 0
    assert sealed.high_watermark(ORDERS) == before + 3
    read = kcat.consume(alice, ORDERS)
    assert read.code == 0, read
    assert read.out.splitlines()[-3:] == written


@pytest.mark.parametrize("mechanism", [*PASSWORDS, "OAUTHBEARER", "mTLS"])
def test_who_has_no_right_gets_nothing(
    sealed: SealedNode, kcat: Kcat, way: Ways, mechanism: str
) -> None:
    mallory, alice = way(mechanism, "mallory"), way(mechanism, "alice")
    before = sealed.high_watermark(ORDERS)
    assert kcat.topics(mallory) == set()
    with ThreadPoolExecutor(3) as pool:
        forged = pool.submit(kcat.produce, mallory, ORDERS, b"forged")
        beyond = pool.submit(kcat.produce, alice, SECRET, b"forged")
        read = pool.submit(kcat.consume_nothing, mallory, ORDERS)
        assert forged.result().code != 0
        assert beyond.result().code != 0
        assert read.result().out == b""
    assert sealed.high_watermark(ORDERS) == before
    assert sealed.high_watermark(SECRET) == 0
    assert any(
        it["event"] == "refused" and it["principal"] == "User:mallory" for it in sealed.audited()
    )


def strangers(sealed: SealedNode, tokens: dict[str, str]) -> dict[str, Way]:
    return {
        **{
            f"{mechanism}, a wrong password": by_password(mechanism, "alice", "guess", sealed.ca)
            for mechanism in PASSWORDS
        },
        "an unknown user": by_password("SCRAM-SHA-512", "nobody", "guess", sealed.ca),
        "a token that nobody has signed": by_unsigned_token("alice", sealed.ca),
        "a token for somebody else": by_token(tokens["wrong"], sealed.ca),
        "no certificate": by_certificate(sealed.ca, None),
        "a certificate of another CA": by_certificate(sealed.ca, sealed.stranger),
        "in the clear": {},
        "in the clear, with the password": {
            **by_password("PLAIN", "alice", "alice-secret", sealed.ca),
            "security.protocol": "SASL_PLAINTEXT",
        },
    }


def test_who_is_not_known_gets_nothing(
    sealed: SealedNode, kcat: Kcat, tokens: dict[str, str]
) -> None:
    """All at once, for each tries for a while."""
    ways = strangers(sealed, tokens)
    if not fetches_tokens():
        del ways["a token for somebody else"]
    before = sealed.high_watermark(ORDERS)
    with ThreadPoolExecutor(8) as pool:
        listed = dict(zip(ways, pool.map(kcat.list, ways.values()), strict=True))
        put = pool.map(lambda way: kcat.produce(way, ORDERS, b"forged"), ways.values())
        took = pool.map(lambda way: kcat.consume_nothing(way, ORDERS), ways.values())
        produced, consumed = (dict(zip(ways, it, strict=True)) for it in (put, took))
    for lacking in ways:
        assert listed[lacking].code != 0, lacking
        assert ORDERS.encode() not in listed[lacking].out, lacking
        assert produced[lacking].code != 0, lacking
        assert consumed[lacking].out == b"", lacking
    assert sealed.high_watermark(ORDERS) == before


@pytest.mark.parametrize(("whose", "comes_in"), [("alice", True), ("wrong", False)])
def test_librdkafka_fetches_a_token(
    sealed: SealedNode, tokens: dict[str, str], whose: str, comes_in: bool
) -> None:
    """As kcat does where its librdkafka was built for it; confluent-kafka's always is."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": sealed.kafka, "log_level": 0,
                         **by_token(tokens[whose], sealed.ca)})  # fmt: skip
    if comes_in:
        assert set(admin.list_topics(timeout=10).topics) == {ORDERS}
    else:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=2)
