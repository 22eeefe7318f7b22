"""Whatever is said to a node, nobody is let in but by the password; and a node answers or closes.

Messages are those of an honest client, bent: cut, changed, repeated, or out of another exchange.
"""

import base64
import contextlib
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from streamlog.authn import bearer, plain
from streamlog.authn.principal_mapping import PrincipalMapping
from streamlog.authn.scram import (
    ClientExchange,
    Credential,
    KnownCredential,
    Scram,
    ServerExchange,
    credential_of,
    salted_password,
)
from streamlog.errors import AuthenticationFailed, ConfigError

SALT = b"salt of the tests"
USERS = {"alice": "secret", "bob": "other", "a=b,c": "odd"}
names = st.sampled_from(sorted(USERS)) | st.text(min_size=1, max_size=20)
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


def _credential(scram: Scram, password: str) -> Credential:
    return credential_of(scram, salted_password(scram, password, SALT, 4096), SALT, 4096)


CREDENTIALS = {
    (scram, user): _credential(scram, password)
    for scram in Scram
    for user, password in USERS.items()
}


def known(scram: Scram) -> Callable[[str], KnownCredential]:
    decoy = CREDENTIALS[scram, "bob"]

    def find(user: str) -> KnownCredential:
        found = CREDENTIALS.get((scram, user))
        return (
            KnownCredential([decoy], is_decoy=True) if found is None else KnownCredential([found])
        )

    return find


@given(st.sampled_from(Scram), names, st.sampled_from(sorted(USERS.values())))
def test_only_the_right_password_opens(scram: Scram, user: str, password: str) -> None:
    server = ServerExchange(scram, known(scram), "server")
    client = ClientExchange(scram, user, password, "client")
    try:
        proof = client.step(server.step(client.first()))
        assert proof is not None
        assert client.step(server.step(proof)) is None
    except AuthenticationFailed:
        assert USERS.get(user) != password or "\0" in user
    else:
        assert USERS.get(user) == password
        assert server.user == user


@st.composite
def bent(draw: st.DrawFn, message: bytes) -> bytes:
    """Not as it was."""
    kind = draw(st.sampled_from(["cut", "flip", "insert", "other"]))
    at = draw(st.integers(0, max(0, len(message) - 1)))
    match kind:
        case "cut":
            return message[:at]
        case "flip":
            bits = draw(st.integers(1, 255))
            return message[:at] + bytes([message[at] ^ bits]) + message[at + 1 :]
        case "insert":
            return message[:at] + draw(st.binary(min_size=1, max_size=5)) + message[at:]
        case _:
            return draw(st.binary(max_size=100))


@given(st.data(), st.sampled_from(Scram), st.sampled_from(sorted(USERS)))
def test_a_bent_proof_proves_nothing(data: st.DataObject, scram: Scram, user: str) -> None:
    server = ServerExchange(scram, known(scram), "server")
    client = ClientExchange(scram, user, USERS[user], "client")
    proof = client.step(server.step(client.first()))
    assert proof is not None
    crooked = data.draw(bent(proof))
    try:
        server.step(crooked)
    except AuthenticationFailed:
        assert server.user is None
    else:
        assert meant(crooked) == meant(proof)


def meant(message: bytes) -> tuple[bytes, bytes]:
    """A message without its proof, and the proof: the last letter of base64 has bits that mean nothing."""
    before, _, proof = message.rpartition(b",p=")
    return before, base64.b64decode(proof)


@given(st.data(), st.sampled_from(Scram), st.sampled_from(sorted(USERS)))
def test_a_bent_first_message_opens_nothing_for_somebody_else(
    data: st.DataObject, scram: Scram, user: str
) -> None:
    server = ServerExchange(scram, known(scram), "server")
    client = ClientExchange(scram, user, USERS[user], "client")
    try:
        proof = client.step(server.step(data.draw(bent(client.first()))))
        assert proof is not None
        server.step(proof)
    except AuthenticationFailed:
        assert server.user is None
    else:
        assert server.user == user


@given(st.sampled_from(Scram), st.lists(st.binary(max_size=60), max_size=4))
def test_noise_opens_nothing(scram: Scram, messages: list[bytes]) -> None:
    server = ServerExchange(scram, known(scram), "server")
    for message in messages:
        with contextlib.suppress(AuthenticationFailed):
            server.step(message)
    assert server.user is None


@given(st.binary(max_size=100) | texts.map(str.encode))
def test_noise_is_no_message_of_plain_or_a_token(message: bytes) -> None:
    for read in (plain.read_message, bearer.read_message):
        try:
            read(message)
        except AuthenticationFailed:
            continue
        assert message.count(b"\0") == 2 or b"\x01auth=" in message


@given(texts.filter(lambda it: "\0" not in it), texts.filter(lambda it: "\0" not in it))
def test_plain_is_read_as_it_was_written(user: str, password: str) -> None:
    assert plain.read_message(plain.encode_message(user, password)) == (user, password)


@given(st.text(alphabet="RULEDFAT:/,\\$1^.*()\n LU", max_size=40))
def test_rules_are_read_or_refused(text: str) -> None:
    try:
        rules = PrincipalMapping(text)
    except ConfigError:
        return
    with contextlib.suppress(AuthenticationFailed):
        rules.principal("CN=alice,O=x")
