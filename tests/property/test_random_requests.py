"""Every request decoder: what kio writes is read, what is changed is read or refused."""

import contextlib
import tracemalloc
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader

from streamlog.errors import MalformedFrame, ProtocolViolation
from streamlog.wire import api_messages, fetch, produce
from streamlog.wire.cursor import Cursor
from streamlog.wire.registry import FETCH, PRODUCE, Api
from tests.random_requests import SPOKEN, RandomRequests

VALID, CHANGED = 20, 60
"""Inputs for each API and version."""
SWOLLEN_BYTES = 40_000
BYTES_PER_BYTE_MAX = 400
"""Of memory, for each that came: an element of an array is an object, and may be two bytes."""


def read_body(cursor: Cursor, api: Api, version: int) -> object:
    """As ``dispatch`` reads it."""
    if api.key == FETCH:
        return fetch.read_request(cursor, version)
    if api.key == PRODUCE:
        return produce.read_request(cursor, version)
    return api_messages.read_request(cursor, api, version)


def plain(value: Any) -> Any:
    """What kio has read, as we have it."""
    match value:
        case _ if is_dataclass(value):
            found: Any = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case tuple() | list():
            found = [plain(item) for item in value]
        case dict():
            found = {key: plain(item) for key, item in value.items()}
        case timedelta():
            found = round(value.total_seconds() * 1000)
        case datetime():
            found = round(value.timestamp() * 1000)
        case memoryview() | bytearray():
            found = bytes(value)
        case float():
            found = repr(value)  # there is a number that is not itself
        case _:
            found = value
    return found


def name_of(spoken: tuple[Api, int]) -> str:
    return f"{spoken[0].name}-{spoken[1]}"


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
def test_what_kio_writes_is_read_as_kio_reads_it(spoken: tuple[Api, int]) -> None:
    api, version = spoken
    for seed in range(VALID):
        body = RandomRequests(Random(seed)).body(api, version)
        if body is None:
            continue
        cursor = Cursor(body)
        try:
            ours = read_body(cursor, api, version)
        except MalformedFrame as error:
            assert api.key in (FETCH, PRODUCE)
            assert "name of a topic of 300 bytes" in str(error)
            continue
        assert cursor.remaining == 0, f"seed {seed}"
        if api.key not in (FETCH, PRODUCE):
            theirs, _ = entity_reader(load_request_schema(api.key, version))(body, 0)
            assert plain(ours) == plain(theirs), f"seed {seed}"


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
def test_what_was_changed_is_read_or_refused(spoken: tuple[Api, int]) -> None:
    for seed in range(CHANGED):
        try_changed(spoken, seed)


@pytest.mark.slow
def test_what_was_changed_is_read_or_refused_for_longer() -> None:
    for spoken in SPOKEN:
        for seed in range(CHANGED, 100 * CHANGED):
            try_changed(spoken, seed)


def try_changed(spoken: tuple[Api, int], seed: int) -> None:
    requests = RandomRequests(Random(seed))
    body = requests.changed(requests.body(*spoken) or bytes(40))
    try:
        with contextlib.suppress(ProtocolViolation):
            read_body(Cursor(body), *spoken)
    except Exception as error:
        raise AssertionError(f"{name_of(spoken)}, seed {seed}: {body!r}") from error


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
def test_memory_grows_with_what_came(spoken: tuple[Api, int]) -> None:
    for seed in range(8):
        requests = RandomRequests(Random(seed))
        body = requests.swollen(requests.body(*spoken) or b"", SWOLLEN_BYTES)
        with contextlib.suppress(ProtocolViolation):
            read_body(Cursor(body), *spoken)  # builds the schema's codec
        tracemalloc.start()
        with contextlib.suppress(ProtocolViolation):
            read_body(Cursor(body), *spoken)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= BYTES_PER_BYTE_MAX * len(body), f"seed {seed}: {peak}"
