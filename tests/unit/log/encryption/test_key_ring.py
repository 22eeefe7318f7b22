import pytest

from streamlog.errors import EncryptionKeyMissing
from streamlog.log.encryption.key_ring import KeyRing

OLD, NEW = bytes(32), bytes(range(32))


def test_a_data_key_is_opened_by_its_key_alone() -> None:
    data_key, wrapped = KeyRing({"old": OLD}, "old").new_data_key()
    assert len(data_key) == 32
    assert data_key not in wrapped.wrapped
    assert KeyRing({"new": NEW, "old": OLD}, "new").unwrapped(wrapped, "x") == data_key
    with pytest.raises(EncryptionKeyMissing, match=r"x needs the key 'old'.*\(new\)"):
        KeyRing({"new": NEW}, "new").unwrapped(wrapped, "x")
    with pytest.raises(EncryptionKeyMissing, match="another one had that name"):
        KeyRing({"old": NEW}, "old").unwrapped(wrapped, "x")


def test_a_renamed_data_key_is_not_opened() -> None:
    _, wrapped = KeyRing({"old": OLD}, "old").new_data_key()
    ring = KeyRing({"old": OLD, "new": OLD}, "new")
    with pytest.raises(EncryptionKeyMissing):
        ring.unwrapped(wrapped._replace(key_name="new"), "x")


def test_a_change_of_keys() -> None:
    ring = KeyRing({"old": OLD}, "old")
    data_key, _ = ring.new_data_key()
    ring.replace({"old": OLD, "new": NEW}, "new")
    wrapped = ring.wrapped(data_key)
    assert (ring.active, wrapped.key_name) == ("new", "new")
    assert KeyRing({"new": NEW}, "new").unwrapped(wrapped, "x") == data_key


def test_without_any() -> None:
    ring = KeyRing()
    assert ring.names == []
    for act in (ring.require, ring.new_data_key):
        with pytest.raises(EncryptionKeyMissing, match=r"encryption\.active_key"):
            act()
