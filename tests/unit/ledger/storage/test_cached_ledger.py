"""One appends, many read and wait; what is damaged is cut off, and read again when it is back."""

import asyncio
from pathlib import Path

import pytest

from streamlog.errors import BlockNotReady, InvalidRequest
from streamlog.ledger.deliver import Behavior, DeliverRequest, deliver
from streamlog.ledger.storage.cached_ledger import RECENT_BYTES, CachedLedger
from streamlog.ledger.storage.store import BlockStore
from streamlog.log.storage.disk import OsDisk

BLOCKS = [b"block %d" % number for number in range(20)]
FIRST = "00000000000000000000.log"
FAIL = Behavior.FAIL_IF_NOT_READY


def ledger_in(folder: Path) -> CachedLedger:
    return CachedLedger(BlockStore.open(folder, OsDisk()))


async def delivered(ledger: CachedLedger, **request: object) -> list[int]:
    wanted = DeliverRequest.model_validate(request).checked()
    return [block.number async for run in deliver(ledger, wanted) for block in run]


async def test_what_is_appended_is_read(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    await ledger.append(0, BLOCKS[:3])
    await ledger.append(3, BLOCKS[3:])
    assert ledger.height == 20
    assert [block.data for block in await ledger.read(0)] == BLOCKS
    with pytest.raises(BlockNotReady, match="no block 20 yet"):
        await ledger.read(20)
    ledger.close()
    again = ledger_in(tmp_path)
    assert [block.data for block in await again.read(5)] == BLOCKS[5:]
    again.close()


async def test_what_is_no_longer_in_memory_comes_from_the_disk(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    large = [bytes([number]) * (RECENT_BYTES // 4) for number in range(10)]
    for number, data in enumerate(large):
        await ledger.append(number, [data])
    for number, data in enumerate(large):
        assert (await ledger.read(number, max_bytes=1))[0].data == data
    ledger.close()


async def test_an_append_that_is_cancelled_is_settled(tmp_path: Path) -> None:
    """The sync goes on in its thread; the next one waits for it, and no block is cut twice."""
    ledger = ledger_in(tmp_path)
    await ledger.append(0, BLOCKS[:2])
    task = asyncio.create_task(ledger.append(2, BLOCKS[2:5]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.height == 2
    await ledger.settle()
    assert ledger.height == 5
    assert [block.data for block in await ledger.read(3)] == BLOCKS[3:5]
    await ledger.append(5, BLOCKS[5:])
    for number in range(20):
        assert (await ledger.read(number))[0] == (number, BLOCKS[number])
    ledger.close()


async def test_what_was_settled_is_read_between_what_is_in_memory(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    await ledger.append(0, BLOCKS[:3])
    task = asyncio.create_task(ledger.append(3, BLOCKS[3:6]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ledger.settle()
    assert [block.data for block in await ledger.read(4)] == BLOCKS[4:6]
    await ledger.append(6, BLOCKS[6:])
    for number in range(20):
        found = await ledger.read(number)
        assert (found[0].number, found[0].data) == (number, BLOCKS[number])
    assert await delivered(ledger, stop="newest") == list(range(20))
    ledger.close()


async def test_files_that_are_opened_anew_may_have_more_than_was_told(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    await ledger.append(0, BLOCKS[:3])
    ledger.store.append(3, BLOCKS[3:6])
    ledger.replace(lambda: BlockStore.open(tmp_path, OsDisk()))
    await ledger.settle()
    await ledger.append(6, BLOCKS[6:8])
    assert [block.data for block in await ledger.read(4)] == BLOCKS[4:8]
    ledger.close()


async def test_deliver_from_and_to(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    await ledger.append(0, BLOCKS)
    assert await delivered(ledger, stop="newest") == list(range(20))
    assert await delivered(ledger, start="newest", stop="newest") == [19]
    assert await delivered(ledger, start=7, stop=9) == [7, 8]
    assert await delivered(ledger, start=7, stop=7) == []
    assert await delivered(ledger, start=18, behavior=FAIL) == [18, 19]
    with pytest.raises(BlockNotReady, match="block 20 is not cut yet; the height is 20"):
        await delivered(ledger, start=18, stop=22, behavior=FAIL)
    ledger.close()


async def test_deliver_waits_for_what_is_not_ready(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    waiting = asyncio.create_task(delivered(ledger, start=2, stop=6))
    for number in range(8):
        await asyncio.sleep(0.001)
        await ledger.append(number, [BLOCKS[number]])
    assert await waiting == [2, 3, 4, 5]
    ledger.close()


async def test_deliver_gives_signs_of_life(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    await ledger.append(0, BLOCKS[:1])
    runs = deliver(ledger, DeliverRequest(), alive_s=0.01)
    assert [block.number for block in await anext(runs)] == [0]
    assert await anext(runs) == []
    await ledger.append(1, BLOCKS[1:2])
    assert [block.number for block in await anext(runs)] == [1]
    await runs.aclose()
    ledger.close()


async def test_damage_is_found_cut_and_waited_for(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    await ledger.append(0, BLOCKS)
    ledger.close()
    data = bytearray((tmp_path / FIRST).read_bytes())
    data[data.index(b"block 7")] ^= 1
    (tmp_path / FIRST).write_bytes(data)

    ledger = ledger_in(tmp_path)
    waiting = asyncio.create_task(delivered(ledger, start=5, stop=9))
    await ledger.damage_found.wait()
    with pytest.raises(BlockNotReady, match="block 7 was found damaged"):
        await ledger.read(7)
    assert ledger.repair() == 7
    with pytest.raises(BlockNotReady, match="no block 7 yet"):
        await ledger.read(7)
    await ledger.append(7, BLOCKS[7:])
    assert await waiting == [5, 6, 7, 8]
    ledger.close()


async def test_a_check_finds_damage_before_anybody_reads_it(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    await ledger.append(0, BLOCKS)
    ledger.close()
    data = bytearray((tmp_path / FIRST).read_bytes())
    data[-1] ^= 1
    (tmp_path / FIRST).write_bytes(data)
    ledger = ledger_in(tmp_path)
    await ledger.check()
    assert ledger.damage_found.is_set()
    assert ledger.repair() == 19
    ledger.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"start": "first"}', "start: "),
        (b'{"start": -1}', "start: -1 is no block's number"),
        (b'{"stop": "oldest"}', "stop: "),
        (b'{"start": 5, "stop": 4}', "stop: block 4 is before block 5"),
        (b'{"behavior": "hurry"}', "behavior: "),
        (b'{"begin": 1}', "begin: "),
        (b"[1]", "request: "),
        (b"\xff", "request: "),
    ],
)
def test_a_request_that_cannot_be_is_refused_in_one_line(text: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        DeliverRequest.parse(text)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_a_request_without_a_word_asks_for_everything() -> None:
    assert DeliverRequest.parse(b"") == DeliverRequest(start="oldest", stop=None)
