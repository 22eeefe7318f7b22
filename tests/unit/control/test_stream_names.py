"""The names of streams that a caller may know of; those that hear a subject."""

import asyncio
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.acl.rules import RuleBook
from streamlog.authn.session import ANONYMOUS_SESSION
from streamlog.authz.audit import Audit
from streamlog.authz.permissions import Permissions
from streamlog.authz.service import AuthorizationService
from streamlog.config import AuthorizationSection
from streamlog.control import streams as module
from streamlog.control.operation import Caller
from streamlog.control.service import SortedNames
from streamlog.control.streams import StreamOperations
from streamlog.errors import InvalidRequest
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.subjects import SUBJECT_BYTES_MAX, overlap
from tests.restricted import ALICE, rule

TOKENS = ("a", "b", "c", "1", "2", "01", "*", ">")


def image(*configs: StreamConfig) -> Any:
    streams = {
        it.name: SimpleNamespace(config=it, partitions=[None] * it.partitions) for it in configs
    }
    return SimpleNamespace(streams=streams)


def operations(image: Any, access: Permissions | None = None) -> StreamOperations:
    service: Any = SimpleNamespace(
        image=image,
        stream_names=SortedNames(),
        metadata_for=lambda _: SimpleNamespace(image=image),
    )
    return StreamOperations(service, Caller(ANONYMOUS_SESSION, access))


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("partition_by", ["subject", "key"])
def test_partitions_are_watched_as_if_each_were_looked_at(
    partitions: int, partition_by: str
) -> None:
    config = StreamConfig.of(
        name="s", subjects=("a", "c.b", "b.*"), partitions=partitions, partition_by=partition_by
    )
    every = [it for number in range(partitions) for it in config.subjects_of(number)]
    for length in (1, 2, 3):
        for tokens in product(TOKENS, repeat=length):
            pattern = ".".join(tokens)
            if ">" in tokens[:-1]:
                continue
            assert config.hears(pattern) == any(overlap(it, pattern) for it in every), pattern


async def test_a_pattern_that_no_subject_is_as_long_as_is_refused() -> None:
    streams = operations(image(StreamConfig.of(name="s")))
    assert await streams.names("s") == ["s"]
    with pytest.raises(InvalidRequest):
        await streams.names("x." * SUBJECT_BYTES_MAX)


async def test_many_streams_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_AT_ONCE", 10)
    known = image(*(StreamConfig.of(name=f"s{n:03}", partitions=100) for n in range(200)))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    assert await operations(known).names("s*.7") == []
    names = await operations(known).names("*.7")
    running.cancel()
    assert (names[190], len(names)) == ("s190", 200)
    assert turns >= 40


async def test_names_are_sorted_again_only_where_there_are_others() -> None:
    known, names = image(*(StreamConfig.of(name=it) for it in "bca")), SortedNames()
    found = await names.of(known.streams)
    assert found == ["a", "b", "c"]
    assert await names.of(known.streams) is found
    others = image(*(StreamConfig.of(name=it) for it in ("z", "__consumer_offsets", "c")))
    assert await names.of(others.streams) == ["c", "z"]


async def test_a_right_that_is_taken_away_takes_the_name_with_it() -> None:
    """The image stays the same, as when the file with rules changes."""
    books = [RuleBook.of(rule("describe topic a")), RuleBook.of(rule("describe topic b"))]
    authorization = AuthorizationService(
        AuthorizationSection(), lambda: books[0], Audit(), enforced=True
    )
    access = authorization.access_of(ALICE)
    assert access is not None
    streams = operations(image(*(StreamConfig.of(name=it) for it in "bca")), access)
    assert await streams.names() == ["a"]
    books.pop(0)
    assert await streams.names() == ["b"]
    assert await streams.names("b") == ["b"]
    assert await streams.names("a") == []
