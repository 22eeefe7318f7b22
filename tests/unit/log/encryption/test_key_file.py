from uuid import UUID

import pytest

from streamlog.errors import CorruptFile
from streamlog.log.encryption.key_file import WRAPPED_BYTES, WrappedKey, decode, encode, scope_of

SCOPE = scope_of(UUID(int=255), 3)
KEY = WrappedKey("2026-11", bytes(range(WRAPPED_BYTES)), 4711, SCOPE)
TEXT = encode(KEY)


def test_there_and_back() -> None:
    assert decode(TEXT, "x") == KEY
    assert TEXT.startswith(
        b"streamlog data key 1\nkey 2026-11\nof 000000000000000000000000000000ff-3\nsince 4711\n"
        b"wrapped AAECAw"
    )
    nobodys = KEY._replace(scope="")
    assert decode(encode(nobodys), "x") == nobodys


@pytest.mark.parametrize("at", range(len(TEXT)))
def test_no_bit_of_it_rots_unseen(at: int) -> None:
    changed = bytearray(TEXT)
    changed[at] ^= 1
    with pytest.raises(CorruptFile, match=r"^x: "):
        decode(bytes(changed), "x")


@pytest.mark.parametrize("length", range(len(TEXT)))
def test_a_torn_one(length: int) -> None:
    for rest in (b"", bytes(len(TEXT) - length)):
        with pytest.raises(CorruptFile):
            decode(TEXT[:length] + rest, "x")


@pytest.mark.parametrize("key", [WrappedKey("a b", KEY.wrapped), WrappedKey("a", b"short")])
def test_what_is_whole_and_no_key(key: WrappedKey) -> None:
    with pytest.raises(CorruptFile, match="not a data key"):
        decode(encode(key), "x")
