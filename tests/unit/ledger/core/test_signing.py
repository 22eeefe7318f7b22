import pytest

from streamlog.ledger.core.signing import (
    Keyring,
    Signer,
    record_message,
    signature_of,
    signature_text,
)
from tests.ledger_stream import ANN, BOB, EVE

RING = Keyring([ANN.identity, BOB.identity])


def test_a_vector_of_rfc_8032() -> None:
    """7.1, test 2."""
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    signer = Signer("x", seed)
    assert signer.identity.public_key == (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    )
    assert signer.sign(b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )


def test_a_signature_is_that_of_one_name_and_one_message() -> None:
    signature = ANN.sign(b"m")
    assert RING.is_signed("ann", b"m", signature)
    assert not RING.is_signed("bob", b"m", signature)
    assert not RING.is_signed("eve", b"m", EVE.sign(b"m"))
    assert not RING.is_signed("ann", b"n", signature)
    assert not RING.is_signed("ann", b"m", signature[:-1])


def test_a_block_signature_is_none_of_a_record() -> None:
    block_hash = bytes(range(32))
    signature = ANN.sign_block(block_hash)
    assert RING.is_block_signed(signature, block_hash)
    assert not RING.is_block_signed(signature._replace(node="bob"), block_hash)
    assert not RING.is_block_signed(signature, bytes(32))
    assert not RING.is_signed("ann", block_hash, signature.signature)


def test_what_is_signed_tells_its_parts_apart() -> None:
    messages = {
        record_message("c", b"", b"k", b"v"),
        record_message("ck", b"", b"", b"v"),
        record_message("c", b"k", b"", b"v"),
        record_message("c", b"", b"kv", b""),
        record_message("c", b"", b"kv", None),
        record_message("c", b"", None, b"kv"),
    }
    assert len(messages) == 6


def test_a_signature_travels_as_base64() -> None:
    signature = ANN.sign(b"m")
    assert signature_of(signature_text(signature)) == signature
    for text in (b"", b"*", b"\xff", signature_text(signature)[:-4], signature_text(bytes(65))):
        with pytest.raises(ValueError, match=r"64 bytes|base64"):
            signature_of(text)


def test_a_seed_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Signer("x", bytes(31))
