import pytest

from streamlog.errors import CorruptFile
from streamlog.log.checked_file import body_of, checked, owned, owned_body, owner_of

MAGIC = b"SLXX\x00\x00\x00\x01"
OWNER = owner_of("/data/orders/3")


def test_what_was_written_is_read() -> None:
    assert bytes(body_of(checked(MAGIC, b"content"), MAGIC, "f", "a file")) == b"content"
    assert bytes(owned_body(owned(MAGIC, OWNER, b"content"), MAGIC, OWNER, "f", "a file")) == (
        b"content"
    )


def test_a_change_of_any_byte_is_seen() -> None:
    data = owned(MAGIC, OWNER, b"content")
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        for found in (bytes(changed), data[:place]):
            with pytest.raises(CorruptFile):
                owned_body(found, MAGIC, OWNER, "f", "a file")


def test_a_file_of_another_folder_is_refused() -> None:
    data = owned(MAGIC, OWNER, b"content")
    for other in ("/data/orders/2", "/data/order/3", "/data/orders/33"):
        with pytest.raises(CorruptFile, match="another folder"):
            owned_body(data, MAGIC, owner_of(other), "f", "a file")
