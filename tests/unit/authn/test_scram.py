"""The messages are those of RFC 7677, section 3; RFC 5802's own are of SHA-1, which is not here."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from streamlog.authn.scram import (
    ITERATIONS_MAX,
    ClientExchange,
    Credential,
    KnownCredential,
    Scram,
    ServerExchange,
    credential_of,
    is_password,
    salted_password,
)
from streamlog.errors import AuthenticationFailed

CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

SECRET = b"s" * 32


def credential(password: str = "pencil", scram: Scram = Scram.SHA_256) -> Credential:
    return credential_of(scram, salted_password(scram, password, SALT, 4096), SALT, 4096)


def server(
    *credentials: Credential, scram: Scram = Scram.SHA_256, is_decoy: bool = False
) -> ServerExchange:
    known = KnownCredential(credentials or (credential(scram=scram),), is_decoy)
    return ServerExchange(scram, lambda _user: known, SERVER_NONCE)


def login(
    exchange: ServerExchange,
    *,
    user: str = "user",
    password: str = "pencil",
    scram: Scram = Scram.SHA_256,
) -> bytes | None:
    client = ClientExchange(scram, user, password, CLIENT_NONCE)
    proof = client.step(exchange.step(client.first()))
    assert proof is not None
    return client.step(exchange.step(proof))


def test_the_server_says_what_the_rfc_says() -> None:
    exchange = server()
    assert exchange.step(FIRST) == CHALLENGE
    assert exchange.user is None
    assert exchange.step(FINAL) == SIGNATURE
    assert exchange.user == "user"


def test_the_client_says_what_the_rfc_says() -> None:
    client = ClientExchange(Scram.SHA_256, "user", "pencil", CLIENT_NONCE)
    assert client.first() == FIRST
    assert client.step(CHALLENGE) == FINAL
    assert client.step(SIGNATURE) is None


@pytest.mark.parametrize("scram", Scram)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "=2C", "zoë", "CN=a,O=b", "a b"])
def test_both_sides_agree(scram: Scram, user: str) -> None:
    exchange = server(scram=scram)
    assert login(exchange, user=user, scram=scram) is None
    assert exchange.user == user


def test_a_wrong_password_proves_nothing() -> None:
    exchange = server()
    with pytest.raises(AuthenticationFailed, match="wrong user or password"):
        login(exchange, password="pencils")
    assert exchange.user is None


def test_there_is_no_second_try() -> None:
    exchange = server()
    client = ClientExchange(Scram.SHA_256, "user", "pencil", CLIENT_NONCE)
    proof = client.step(exchange.step(client.first()))
    assert proof is not None
    with pytest.raises(AuthenticationFailed):
        exchange.step(proof.replace(b"p=", b"p=AAAA"))
    with pytest.raises(AuthenticationFailed):
        exchange.step(proof)
    assert exchange.user is None


def test_what_was_proved_before_proves_nothing_again() -> None:
    replayed = ServerExchange(Scram.SHA_256, lambda _: KnownCredential([credential()]), "another")
    replayed.step(FIRST)
    with pytest.raises(AuthenticationFailed, match="another exchange"):
        replayed.step(FINAL)


def final_with(nonce: str, exchange: ServerExchange) -> bytes:
    """A proof by the right password about a nonce of one's choice, as RFC 5802 has it."""
    challenge = exchange.step(FIRST)
    salted = salted_password(Scram.SHA_256, "pencil", SALT, 4096)
    bare = f"c=biws,r={nonce}".encode()
    about = FIRST[3:] + b"," + challenge + b"," + bare
    key = hmac.digest(salted, b"Client Key", "sha256")
    mask = hmac.digest(hashlib.sha256(key).digest(), about, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, mask, strict=True))
    return bare + b",p=" + b64encode(proof)


def test_an_older_librdkafka_says_its_nonce_twice() -> None:
    """Before 2.6.1: kcat, and what is built on it."""
    exchange = server()
    exchange.step(final_with(CLIENT_NONCE + CLIENT_NONCE + SERVER_NONCE, exchange))
    assert exchange.user == "user"


@pytest.mark.parametrize(
    "nonce",
    [CLIENT_NONCE, SERVER_NONCE, CLIENT_NONCE + SERVER_NONCE[:-1], CLIENT_NONCE + CLIENT_NONCE,
     "x" + CLIENT_NONCE + SERVER_NONCE, "another" + SERVER_NONCE],
)  # fmt: skip
def test_a_proof_about_another_nonce_is_none(nonce: str) -> None:
    exchange = server()
    final = final_with(nonce, exchange)
    with pytest.raises(AuthenticationFailed, match="another exchange"):
        exchange.step(final)
    assert exchange.user is None


def test_nothing_comes_after_the_end() -> None:
    exchange = server()
    login(exchange)
    with pytest.raises(AuthenticationFailed, match="over"):
        exchange.step(FIRST)


def test_either_of_two_passwords_will_do_while_one_takes_the_others_place() -> None:
    for password in ("old", "new"):
        exchange = server(credential("new"), credential("old"))
        login(exchange, password=password)
        assert exchange.user == "user"


def test_even_the_right_proof_opens_no_decoy() -> None:
    with pytest.raises(AuthenticationFailed, match="wrong user or password"):
        login(server(credential(), is_decoy=True))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,,r=x,n=user",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=x\x00",
        b"n,,n=user,r=\xff",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=user,r=x,tokenauth=true",
        b"n,a=admin,n=user,r=x",
        b"n,,n=user,r=" + b"x" * 5_000,
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server().step(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        FIRST,
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"c=biws", b"c=????"),
        FINAL.replace(b",p=dHzb", b",p=dHz"),
        FINAL.replace(b",p=", b",x=1,p="),
        FINAL[: FINAL.index(b",p=")],
        FINAL[: FINAL.index(b",p=")] + b",p=",
        FINAL[: FINAL.index(b",p=")] + b",p=AAAA",
    ],
)
def test_a_final_message_that_is_none_is_refused(message: bytes) -> None:
    exchange = server()
    exchange.step(FIRST)
    with pytest.raises(AuthenticationFailed):
        exchange.step(message)
    assert exchange.user is None


def test_the_client_believes_no_server_that_does_not_know_the_password() -> None:
    client = ClientExchange(Scram.SHA_256, "user", "pencil", CLIENT_NONCE)
    client.step(CHALLENGE)
    with pytest.raises(AuthenticationFailed, match="does not know"):
        client.step(b"v=" + b64encode(b"x" * 32))


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE.replace(b"i=4096", b"i=1"),
        CHALLENGE.replace(b"i=4096", b"i=%d" % (ITERATIONS_MAX + 1)),
        CHALLENGE.replace(b"r=rO", b"r=xO"),
        b"r=%b,s=AAAA,i=4096" % CLIENT_NONCE.encode(),
        b"e=other-error",
        b"",
    ],
)
def test_the_client_takes_no_challenge_that_is_none(challenge: bytes) -> None:
    client = ClientExchange(Scram.SHA_256, "user", "pencil", CLIENT_NONCE)
    with pytest.raises(AuthenticationFailed):
        client.step(challenge)


@pytest.mark.parametrize("scram", Scram)
def test_a_plain_password_is_held_against_the_same_credential(scram: Scram) -> None:
    kept = credential("pencil", scram)
    assert is_password(scram, "pencil", kept)
    assert not is_password(scram, "Pencil", kept)


def test_a_credential_is_not_shown() -> None:
    kept = credential()
    assert kept.stored_key.hex() not in repr(kept)
    assert "stored" not in repr(kept)
