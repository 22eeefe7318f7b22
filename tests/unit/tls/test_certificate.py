"""A certificate's names and dates, compared with those that the library cryptography reads."""

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.tls.certificate import read_certificate
from tests.certificate_authority import CertificateAuthority

KEY = ec.generate_private_key(ec.SECP256R1())
LETTERS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=20
)
KINDS = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.USER_ID,
)
NAMES = st.lists(
    st.lists(
        st.tuples(st.sampled_from(KINDS), LETTERS),
        min_size=1,
        max_size=2,
        unique_by=lambda it: it[0],
    ),
    max_size=4,
).map(
    lambda rdns: x509.Name(
        x509.RelativeDistinguishedName(x509.NameAttribute(*pair) for pair in rdn) for rdn in rdns
    )
)
TIMES = st.datetimes(datetime(1951, 1, 1), datetime(2199, 1, 1)).map(
    lambda time: time.replace(microsecond=0, tzinfo=UTC)
)


def signed(subject: x509.Name, not_after: datetime) -> bytes:
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([]))
        .public_key(KEY.public_key())
        .serial_number(1 << 100)
        .not_valid_before(datetime(1950, 1, 1, tzinfo=UTC))
        .not_valid_after(not_after)
        .sign(KEY, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.DER)


@settings(max_examples=60)
@given(NAMES, TIMES)
def test_subject_and_end_are_as_another_library_reads_them(
    name: x509.Name, not_after: datetime
) -> None:
    der = signed(name, not_after)
    found = read_certificate(der)
    assert found.not_after == not_after
    written = x509.load_der_x509_certificate(der).subject
    assert sorted(found.subject) == sorted(written.rfc4514_string())
    assert x509.Name.from_rfc4514_string(found.subject) == written or not found.subject.isascii()


def test_a_subject_is_written_as_kafka_shows_it() -> None:
    attributes = [
        (NameOID.COUNTRY_NAME, "DE"),
        (NameOID.ORGANIZATION_NAME, "Flights, Ltd."),
        (NameOID.COMMON_NAME, "alice"),
    ]
    name = x509.Name([x509.NameAttribute(*pair) for pair in attributes])
    found = read_certificate(signed(name, datetime.now(UTC) + timedelta(days=1)))
    assert found.subject == "CN=alice,O=Flights\\, Ltd.,C=DE"


def test_what_has_no_keyword_is_written_in_numbers() -> None:
    name = x509.Name([x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b")])
    found = read_certificate(signed(name, datetime.now(UTC) + timedelta(days=1)))
    assert found.subject == "1.2.840.113549.1.9.1=#1603614062"


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 255))
def test_whatever_comes_is_read_or_refused(data: bytes, at: int, byte: int) -> None:
    for der in (data, bent(at, byte), GOOD[:at]):
        with contextlib.suppress(ValueError):
            read_certificate(der)


GOOD = signed(
    x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")]), datetime(2030, 1, 1, tzinfo=UTC)
)


def bent(at: int, byte: int) -> bytes:
    at %= len(GOOD)
    return GOOD[:at] + bytes([byte]) + GOOD[at + 1 :]


def test_no_certificate_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no certificate"):
        read_certificate(b"")
    issued = CertificateAuthority(tmp_path).issue("node", organization="Example")
    assert issued.pair.certificate().subject.startswith("CN=node,OU=")
