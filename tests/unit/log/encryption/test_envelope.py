import pytest

from streamlog.errors import CorruptFile, EncryptionKeyMissing
from streamlog.log.encryption.envelope import enveloped, is_enveloped, opened
from streamlog.log.sidecar_files import SidecarFiles
from tests.log_folder import FOLDER, a_key_ring
from tests.simulation.disk import SimDisk

KEYS = a_key_ring()
CONTENT = b"ids that nobody is to know"


def test_there_and_back() -> None:
    data = enveloped(CONTENT, KEYS)
    assert is_enveloped(data)
    assert not is_enveloped(CONTENT)
    assert CONTENT not in data
    assert opened(data, KEYS, "x") == CONTENT


def test_nothing_is_changed_unseen() -> None:
    data = enveloped(CONTENT, KEYS)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises((CorruptFile, EncryptionKeyMissing)):
            opened(bytes(changed), KEYS, "x")
        with pytest.raises(CorruptFile):
            opened(data[:at], KEYS, "x")


def test_of_another_key() -> None:
    with pytest.raises(EncryptionKeyMissing, match="'k1'"):
        opened(enveloped(CONTENT, KEYS), a_key_ring("k2"), "x")


def test_beside_a_log() -> None:
    disk = SimDisk()
    disk.make_directory(str(FOLDER))
    beside = SidecarFiles(disk, str(FOLDER), KEYS)
    beside.write("ids", CONTENT, encrypts=True)
    assert CONTENT not in disk.content(f"{FOLDER}/ids")
    assert beside.read("ids") == CONTENT
    beside.write("ids", CONTENT)
    assert disk.content(f"{FOLDER}/ids") == beside.read("ids") == CONTENT
