import pytest

from streamlog.authn.principal import ANONYMOUS, Principal
from streamlog.authn.session import ANONYMOUS_SESSION, Session
from streamlog.errors import InvalidRequest


def test_a_principal_is_written_as_kafka_writes_it() -> None:
    assert str(Principal.user("alice")) == "User:alice"
    assert Principal.parse("User:alice") == Principal.user("alice")


def test_a_name_may_have_colons() -> None:
    name = "CN=a:b,O=c"
    assert Principal.parse(str(Principal.user(name))).name == name


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:", "User"])
def test_half_a_principal_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="User:alice"):
        Principal.parse(text)


def test_nobody_is_known_before_a_proof() -> None:
    assert ANONYMOUS_SESSION.principal is ANONYMOUS
    assert not ANONYMOUS_SESSION.is_known
    assert Session(Principal.user("alice")).is_known
