"""What is shown for a user that is not there looks like what is shown for one that is."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.authn.decoys import KINDS_MAX, Decoys, Kind
from streamlog.authn.scram import ITERATIONS, SALT_BYTES, Credential, Scram, is_password

SECRET = b"s" * 32
NAMES = [f"user-{number}" for number in range(2_000)]
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def credential(salt: bytes, iterations: int = ITERATIONS) -> Credential:
    return Credential(salt, iterations, bytes(32), bytes(32))


def kafka_salt(rng: random.Random) -> bytes:
    """As Kafka's ``ScramFormatter`` makes it: 130 bits in base 36."""
    number, text = rng.getrandbits(130), ""
    while number:
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return text.encode()


def looks(shown: Credential) -> tuple[object, ...]:
    """What somebody without a password can see: how long, of what, how it begins."""
    text = shown.salt.decode("latin-1")
    is_kafkas = set(text) <= set(DIGITS)
    begins_with_1 = is_kafkas and len(text) == 26 and text[0] == "1"
    return shown.iterations, len(text), is_kafkas, begins_with_1


def shares(shown: list[Credential]) -> dict[tuple[object, ...], float]:
    return {it: count / len(shown) for it, count in Counter(map(looks, shown)).items()}


def test_a_name_is_shown_the_same_each_time_and_no_password_opens_it() -> None:
    decoys = Decoys(Scram.SHA_256, [])
    assert decoys.of("nobody", SECRET) == decoys.of("nobody", SECRET)
    scram, shown = decoys.of("nobody", SECRET)
    assert (scram, len(shown.salt), shown.iterations) == (Scram.SHA_256, SALT_BYTES, ITERATIONS)
    assert shown.salt != decoys.of("somebody", SECRET)[1].salt
    assert shown.salt != decoys.of("nobody", b"t" * 32)[1].salt
    assert not is_password(scram, "", shown)


TOOLS: dict[str, Callable[[random.Random], Credential]] = {
    "streamlog": lambda rng: credential(rng.randbytes(24)),
    "kafka": lambda rng: credential(kafka_salt(rng), 4_096),
    "librdkafka": lambda rng: credential(rng.randbytes(64), 10_000),
    "hex": lambda rng: credential(rng.randbytes(8).hex().encode(), 15_000),
}


@pytest.mark.parametrize(
    "users", [("kafka",), ("streamlog",), ("kafka", "kafka", "kafka", "streamlog"), tuple(TOOLS)]
)
def test_decoys_look_like_the_users_of_whatever_tools(users: tuple[str, ...]) -> None:
    """In the same shares, down to how often a text of Kafka's has 24, 25 and 26 characters."""
    rng = random.Random(7)
    real = [TOOLS[users[number % len(users)]](rng) for number in range(2_000)]
    decoys = Decoys(Scram.SHA_256, [Kind.of(Scram.SHA_256, it) for it in real])
    shown = [decoys.of(name, SECRET)[1] for name in NAMES]
    of_users, of_decoys = shares(real), shares(shown)
    for look in of_users.keys() | of_decoys.keys():
        assert abs(of_users.get(look, 0) - of_decoys.get(look, 0)) < 0.04, look


def test_few_names_are_shown_another_salt_when_users_come_and_go() -> None:
    """Else whoever asks twice would see that a name which nobody changed is a decoy."""
    kinds = [Kind(Scram.SHA_256, 4_096), Kind(Scram.SHA_256, 8_192)] * 50
    before = Decoys(Scram.SHA_256, kinds)
    after = Decoys(Scram.SHA_256, [*kinds, kinds[0]])
    moved = [it for it in NAMES if before.of(it, SECRET) != after.of(it, SECRET)]
    assert len(moved) <= len(NAMES) * 0.02
    assert all(after.of(it, SECRET)[1].iterations == 4_096 for it in moved)


def test_what_a_name_costs_does_not_grow_with_the_users() -> None:
    kinds = [Kind(Scram.SHA_256, 4_096 + number) for number in range(1_000)]
    assert len(Decoys(Scram.SHA_256, kinds)._weights) == KINDS_MAX


@given(st.binary(min_size=1, max_size=128), st.text(min_size=1, max_size=20))
def test_a_decoy_is_of_the_kind_that_it_is_made_of(salt: bytes, user: str) -> None:
    kind = Kind.of(Scram.SHA_512, credential(salt, 5_000))
    made = Decoys(Scram.SHA_512, [kind]).of(user, SECRET)[1]
    assert made.iterations == 5_000
    if kind.salt != "kafka":
        assert len(made.salt) == len(salt)
    assert len(made.stored_key) == 64
