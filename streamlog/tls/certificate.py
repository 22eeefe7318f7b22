"""What a certificate says of its owner and its time, read out of its DER (X.690, RFC 5280).

Python's own ``getpeercert`` loses the form of a name, and tells nothing of one's own certificate.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from streamlog.condition import Condition

SOON: Final = timedelta(days=14)
"""A certificate that lasts no longer is to be renewed ..."""
URGENT: Final = timedelta(days=2)
"""... and one that lasts no longer than this, today. ``deploy/alerts.yml`` has the same two."""

CERTIFICATE_ENDS: Final = Condition(
    "SL-0601",
    "certificate expires or has expired",
    "put a renewed one in the place of its file: the node reads it by itself; `streamlog doctor` "
    "there names the file",
    meaning="Clients, other nodes, browsers and Prometheus refuse a certificate that has expired. "
    "A node whose socket API shows one does not lead. Its end is reported from 14 days before on.",
)

_SEQUENCE, _OID, _VERSION = 0x30, 0x06, 0xA0
_UTC_TIME, _GENERAL_TIME = 0x17, 0x18
_CODECS: Final = {
    0x0C: "utf-8", 0x12: "ascii", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii",
    0x1A: "ascii", 0x1C: "utf-32-be", 0x1E: "utf-16-be",
}  # fmt: skip
"""Of the kinds of strings."""
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""RFC 4514, section 3; other types are written as numbers, and their values in hex."""


class Certificate(NamedTuple):
    """As far as it is of interest here."""

    subject: str
    """As RFC 4514 writes it, and Kafka shows it: ``CN=alice,OU=orders,O=Example``."""
    not_after: datetime


class _Element(NamedTuple):
    tag: int
    whole: bytes
    content: bytes


def read_certificate(der: bytes) -> Certificate:
    """Raises ValueError for what is no certificate."""
    try:
        fields = list(_children(next(_children(der)).content))
        inner = [it for it in _children(fields[0].content) if it.tag != _VERSION]
        _serial, _signature, _issuer, validity, subject, *_ = inner
        _, not_after = _children(validity.content)
        return Certificate(_name(subject), _time(not_after))
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise ValueError("this is no certificate") from error


def read_next_update(der: bytes) -> datetime | None:
    """Until when a list of what a CA has revoked holds; None: it does not say. Raises ValueError.

    RFC 5280, section 5.1: of its two times the second one, which may be left out.
    """
    try:
        fields = list(_children(next(_children(der)).content))
        times = [it for it in _children(fields[0].content) if it.tag in (_UTC_TIME, _GENERAL_TIME)]
        return _time(times[1]) if len(times) > 1 else None
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise ValueError("this is no list of revocations") from error


def _children(data: bytes) -> Iterator[_Element]:
    at = 0
    while at < len(data):
        tag, length, start = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, start = int.from_bytes(data[start : start + size]), start + size
        end = start + length
        if end > len(data):
            raise ValueError("an element ends beyond its own")
        yield _Element(tag, data[at:end], data[start:end])
        at = end


def _time(element: _Element) -> datetime:
    """RFC 5280, section 4.1.2.5: two digits of a year up to 2049, four from then on."""
    text = element.content.decode("ascii")
    if element.tag == _UTC_TIME:
        text = ("20" if text[:2] < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _name(subject: _Element) -> str:
    parts = [
        "+".join(_attribute(it) for it in _children(rdn.content))
        for rdn in _children(subject.content)
    ]
    return ",".join(reversed(parts))


def _attribute(pair: _Element) -> str:
    kind, value = _children(pair.content)
    oid = _oid(kind.content)
    keyword, codec = _KEYWORDS.get(oid), _CODECS.get(value.tag)
    if keyword is None or codec is None:
        return f"{oid}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(codec))}"


def _oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    """RFC 4514, section 2.4."""
    out = "".join(f"\\{c}" if c in '"+,;<>\\' else "\\00" if c == "\0" else c for c in text)
    if out.startswith((" ", "#")):
        out = "\\" + out
    if out.endswith(" ") and len(text) > 1:
        out = out[:-1] + "\\ "
    return out
