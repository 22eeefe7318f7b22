import pytest

from streamlog.errors import CorruptBatch, CorruptFile, EncryptionKeyMissing
from streamlog.log.encryption import key_file
from streamlog.log.encryption.cipher import BatchCipher
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.encryption.opener import SegmentOpener
from tests.log_folder import a_key_ring, make_batch

BATCH = make_batch(7, [b"first", b"second"])
PATH = "/copy/00000000000000000007.log"


class Files:
    """What lies there: a data key, read as often as ``reads`` says."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.reads = 0

    def read(self, path: str) -> bytes:
        assert path == "/copy/00000000000000000007.key"
        self.reads += 1
        if self.content is None:
            raise FileNotFoundError(path)
        return self.content


@pytest.fixture
def sealed() -> tuple[bytes, Files]:
    """A batch, and the data key that it is under."""
    data_key, wrapped = a_key_ring().new_data_key()
    return BatchCipher(data_key).encrypted(BATCH), Files(key_file.encode(wrapped))


def opener(files: Files, keys: KeyRing) -> SegmentOpener:
    return SegmentOpener(PATH, keys, files.read)


def test_what_is_in_the_clear_takes_no_key() -> None:
    files = Files(None)
    assert opener(files, KeyRing()).opened(BATCH) is BATCH


def test_batches_are_opened_by_a_key_that_is_read_once(sealed: tuple[bytes, Files]) -> None:
    batch, files = sealed
    opens = opener(files, a_key_ring())
    assert [opens.opened(batch) for _ in range(3)] == [BATCH] * 3
    assert files.reads == 1


def test_a_key_that_nobody_gave_is_named_with_the_remedy(sealed: tuple[bytes, Files]) -> None:
    batch, files = sealed
    for keys in (KeyRing(), a_key_ring("k2")):
        with pytest.raises(EncryptionKeyMissing, match=r"07\.key needs the key 'k1'.*; give it as"):
            opener(files, keys).opened(batch)
    assert opener(files, KeyRing()).key_name == "k1"


def test_a_data_key_that_is_missing_or_damaged(sealed: tuple[bytes, Files]) -> None:
    batch, _ = sealed
    gone, damaged = opener(Files(None), a_key_ring()), opener(Files(b"x"), a_key_ring())
    with pytest.raises(CorruptFile, match=r"07\.key is missing: what is encrypted in .*07\.log"):
        gone.opened(batch)
    with pytest.raises(CorruptFile, match=r"07\.key: not a file of a data key"):
        damaged.opened(batch)
    assert (gone.key_name, damaged.key_name) == ("?", "?")


def test_a_changed_batch_does_not_open(sealed: tuple[bytes, Files]) -> None:
    batch, files = sealed
    changed = batch[:-1] + bytes([batch[-1] ^ 1])
    with pytest.raises(CorruptBatch, match="offset 7 does not decrypt"):
        opener(files, a_key_ring()).opened(changed)
