from base64 import b64encode

import pytest

from streamlog.authn.scram import Scram, credential_of
from streamlog.errors import InvalidRequest
from streamlog.metadata.commands import AlterUser, Command, decode_command, encode_command
from streamlog.metadata.controller.clients import alter_user
from streamlog.metadata.image.credential import USERS_MAX, Credentials, StoredCredential
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import DecoySecretChosen, UserChanged
from streamlog.model import ScramName
from tests.controller_world import World

SECRET = b64encode(b"one" * 10).decode()


def stored(seed: str = "a", mechanism: ScramName = "SCRAM-SHA-256") -> StoredCredential:
    scram = Scram(mechanism)
    salted = seed.encode() * scram.size_bytes
    return StoredCredential.of(credential_of(scram, salted, b"salt", 8192))


def both(seed: str = "a") -> Credentials:
    return {
        "SCRAM-SHA-256": stored(seed),
        "SCRAM-SHA-512": stored(seed, "SCRAM-SHA-512"),
    }


def altered(image: MetadataImage, command: AlterUser) -> MetadataImage:
    decision = alter_user(image, command)
    return image.apply_all(decision.records, offset=image.offset, epoch=1)


def setting(name: str = "alice", seed: str = "a") -> AlterUser:
    return AlterUser(name=name, changed=both(seed), decoy_secret=SECRET)


def test_the_first_user_brings_the_secret_and_later_ones_keep_it() -> None:
    image = altered(MetadataImage("c"), setting())
    assert dict(image.users) == {"alice": both()}
    assert image.decoy_secret == SECRET
    later = AlterUser(name="bob", changed=both(), decoy_secret=b64encode(b"two").decode())
    assert [type(it) for it in alter_user(image, later).records] == [UserChanged]
    assert altered(image, later).decoy_secret == SECRET


def test_the_same_again_changes_nothing() -> None:
    image = altered(MetadataImage("c"), setting())
    assert alter_user(image, setting()).records == ()


def test_one_password_takes_the_others_place() -> None:
    image = altered(altered(MetadataImage("c"), setting()), setting(seed="b"))
    assert image.users["alice"] == both("b")


def test_who_has_no_password_left_is_gone() -> None:
    image = altered(MetadataImage("c"), setting())
    one = AlterUser(name="alice", removed=("SCRAM-SHA-256",), decoy_secret=SECRET)
    image = altered(image, one)
    assert list(image.users["alice"]) == ["SCRAM-SHA-512"]
    with pytest.raises(InvalidRequest, match="no credential for SCRAM-SHA-256"):
        alter_user(image, one)
    rest = AlterUser(name="alice", removed=("SCRAM-SHA-512",), decoy_secret=SECRET)
    image = altered(image, rest)
    assert not image.users
    assert image.decoy_secret == SECRET


@pytest.mark.parametrize("name", ["ANONYMOUS", " alice", "a\nb", "a\0b"])
def test_a_name_that_will_not_do(name: str) -> None:
    with pytest.raises(InvalidRequest):
        alter_user(MetadataImage("c"), setting(name))


def test_a_key_has_the_size_of_its_mechanism() -> None:
    wrong: Credentials = {"SCRAM-SHA-512": stored()}
    with pytest.raises(InvalidRequest, match="64 bytes"):
        alter_user(MetadataImage("c"), AlterUser(name="a", changed=wrong, decoy_secret=SECRET))


def test_there_may_be_so_many() -> None:
    records = [UserChanged(name=f"u{n}", credentials=both()) for n in range(USERS_MAX)]
    image = MetadataImage("c").apply_all(
        [DecoySecretChosen(secret=SECRET), *records], offset=0, epoch=1
    )
    with pytest.raises(InvalidRequest, match="no more may be"):
        alter_user(image, setting("one more"))
    altered(image, setting("u7", "b"))


def test_the_controller_takes_it_as_it_comes_over_the_wire() -> None:
    world = World(1)
    command: Command = decode_command(encode_command(setting()))
    world.ask(command)
    assert dict(world.image.users) == {"alice": both()}


def test_a_credential_is_not_shown() -> None:
    shown = repr(setting()) + str(setting())
    assert stored().stored_key not in shown
    assert stored().server_key not in shown
