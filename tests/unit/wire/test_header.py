from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_reader

from streamlog.errors import MalformedFrame, UnsupportedVersion
from streamlog.wire.cursor import Cursor
from streamlog.wire.header import (
    encode_request_header,
    encode_response_header,
    read_request_header,
    read_response_header,
)
from streamlog.wire.registry import API_VERSIONS, APIS, FETCH, METADATA, Api


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_request_header_comes_back_and_kio_reads_the_same(api: Api) -> None:
    for version in range(api.version_min, api.version_max + 1):
        data = encode_request_header(api, version, 77, "me")
        cursor = Cursor(data + b"body")
        assert read_request_header(cursor) == (api, version, 77, "me")
        assert cursor.take(4) == b"body"
        schema = KioHeaderV2 if api.is_flexible(version) else KioHeaderV1
        theirs: Any
        theirs, size = entity_reader(schema)(data, 0)
        assert (theirs.request_api_key, theirs.request_api_version) == (api.key, version)
        assert (theirs.correlation_id, theirs.client_id, size) == (77, "me", len(data))


def test_api_versions_answers_with_header_version_0_always() -> None:
    api = APIS[API_VERSIONS]
    for version in range(5):
        assert encode_response_header(api, version, 5) == b"\x00\x00\x00\x05"
    assert encode_response_header(APIS[METADATA], 8, 5) == b"\x00\x00\x00\x05"
    assert encode_response_header(APIS[METADATA], 9, 5) == b"\x00\x00\x00\x05\x00"


@pytest.mark.parametrize(("key", "version"), [(METADATA, 8), (METADATA, 9), (API_VERSIONS, 4)])
def test_a_response_header_comes_back(key: int, version: int) -> None:
    cursor = Cursor(encode_response_header(APIS[key], version, 9) + b"!")
    assert read_response_header(cursor, APIS[key], version) == 9
    assert cursor.take(1) == b"!"


def test_a_newer_api_versions_is_let_through_without_its_body() -> None:
    header = read_request_header(Cursor(b"\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff\xff"))
    assert (header.api.key, header.version, header.correlation_id) == (API_VERSIONS, 99, 1)


@pytest.mark.parametrize(
    ("key", "version"),
    [(99, 0), (-1, 0), (FETCH, 3), (FETCH, 19), (METADATA, -1), (API_VERSIONS, -1)],
)
def test_what_is_not_offered_is_refused(key: int, version: int) -> None:
    data = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    with pytest.raises(UnsupportedVersion):
        read_request_header(Cursor(data + bytes(20)))


@pytest.mark.parametrize("size", range(10))
def test_a_cut_header_is_malformed(size: int) -> None:
    data = encode_request_header(APIS[METADATA], 12, 1, "me")
    with pytest.raises(MalformedFrame):
        read_request_header(Cursor(data[:size]))
