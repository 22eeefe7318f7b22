"""Buckets of keys, through nats-py's own ``KeyValue``: the same of JetStream and of a node."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from tests.integration.jetstream_pair import Pair

GONE_S = 20.0


async def buckets(pair: Pair, **config: Any) -> AsyncIterator[KeyValue]:
    """One on each side, under the prefix that each answers by default."""
    for side, domain in zip(pair.sides, (None, "streamlog"), strict=True):
        jetstream = side.publisher.client.jetstream(domain=domain)
        yield await jetstream.create_key_value(bucket="b", **config)


async def values(bucket: KeyValue) -> int:
    return (await bucket.status()).values


async def is_found(bucket: KeyValue, key: str, revision: int | None = None) -> bool:
    try:
        await bucket.get(key, revision)
    except KeyNotFoundError:
        return False
    return True


async def gone(bucket: KeyValue, key: str, revision: int | None = None) -> None:
    async with asyncio.timeout(GONE_S):
        while await is_found(bucket, key, revision):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("direct", [True, False])
async def test_put_and_get(pair: Pair, direct: bool) -> None:
    async for bucket in buckets(pair, direct=direct):
        assert not await is_found(bucket, "colour")
        first = await bucket.put("colour", b"red")
        assert first == 1
        await bucket.put("size/of.it", b"")
        entry = await bucket.get("colour")
        assert (entry.key, entry.value, entry.revision) == ("colour", b"red", first)
        assert (await bucket.get("size/of.it")).value in (b"", None)
        assert await bucket.put("colour", b"blue") > first
        assert (await bucket.get("colour")).value == b"blue"
        assert await values(bucket) == 2


async def test_updates_expect_a_revision(pair: Pair) -> None:
    async for bucket in buckets(pair, history=2):
        first = await bucket.create("k", b"1")
        with pytest.raises(KeyWrongLastSequenceError, match=f"wrong last sequence: {first}"):
            await bucket.create("k", b"refused")
        second = await bucket.update("k", b"2", last=first)
        for wrong in (first, second + 1, 0):
            with pytest.raises(KeyWrongLastSequenceError, match=str(second)):
                await bucket.update("k", b"refused", last=wrong)
        with pytest.raises(Exception, match="wrong last sequence"):
            await bucket.delete("k", last=first)
        assert (await bucket.get("k")).value == b"2"
        racers = [bucket.update("k", b"3", last=second) for _ in range(20)]
        told = await asyncio.gather(*racers, return_exceptions=True)
        assert sum(isinstance(it, int) for it in told) == 1
        assert sum(isinstance(it, KeyWrongLastSequenceError) for it in told) == 19


async def test_the_newest_of_a_key_stay(pair: Pair) -> None:
    async for bucket in buckets(pair, history=3):
        revisions = [await bucket.put("k", b"%d" % number) for number in range(6)]
        other = await bucket.put("other", b"x")
        assert await values(bucket) == 4
        for revision in revisions[:3]:
            await gone(bucket, "k", revision)
        kept = [(await bucket.get("k", revision)).value for revision in revisions[3:]]
        assert kept == [b"3", b"4", b"5"]
        assert not await is_found(bucket, "k", other), "a revision of another key"
        assert (await bucket.status()).history == 3


async def test_deleted_and_purged(pair: Pair) -> None:
    async for bucket in buckets(pair, history=5):
        for number in range(3):
            await bucket.put("k", b"%d" % number)
        kept = await bucket.put("other", b"x")
        await bucket.delete("k")
        assert await values(bucket) == 5, "deleted: what was before is kept"
        with pytest.raises(KeyNotFoundError) as told:
            await bucket.get("k")
        assert told.value.op == "DEL"
        assert (await bucket.get("k", 1)).value == b"0"
        again = await bucket.create("k", b"again")
        await bucket.purge("k")
        assert await values(bucket) == 2, "purged: the marker, and the other key"
        with pytest.raises(KeyNotFoundError) as told:
            await bucket.get("k")
        assert told.value.op == "PURGE"
        assert not await is_found(bucket, "k", again)
        await bucket.create("k", b"once more")
        assert (await bucket.get("k")).value == b"once more"
        assert (await bucket.get("other")).revision == kept


async def test_keys_go_by_themselves(pair: Pair) -> None:
    async for bucket in buckets(pair):
        await bucket.put("long", b"y")
        assert await bucket.create("short", b"x", msg_ttl=1.0) == 2
        await gone(bucket, "short")
        await bucket.create("short", b"anew")
        assert await values(bucket) == 2
