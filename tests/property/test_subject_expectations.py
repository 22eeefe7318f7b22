"""Messages that expect a subject's last sequence, in any mixture, against a naive log."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import StorageFull
from tests.ingest_way import Way
from tests.oracles.subjects import matches

START = 10

names = st.sampled_from(["a", "b", "c.1", "c.2"])
patterns = st.sampled_from(["a", "b", "c.1", "c.*", ">", "d"])


class Sent(NamedTuple):
    """A message; ``behind``: how far its expectation is from the truth, None: it has none."""

    subject: str
    behind: int | None
    pattern: str = ""

    def frame(self, reply: int, expected: int) -> bytes:
        if self.behind is None:
            return f"MSG {self.subject} 1 r.{reply} 1\r\nx\r\n".encode()
        lines = f"Nats-Expected-Last-Subject-Sequence: {expected}\r\n"
        if self.pattern:
            lines += f"Nats-Expected-Last-Subject-Sequence-Subject: {self.pattern}\r\n"
        block = f"NATS/1.0\r\n{lines}\r\n"
        sizes = f"{len(block)} {len(block) + 1}"
        return f"HMSG {self.subject} 1 r.{reply} {sizes}\r\n{block}x\r\n".encode()


sent = st.builds(Sent, names, st.none() | st.sampled_from([0, 0, 0, 1, 3]), st.just("") | patterns)


class Read(NamedTuple):
    """What one read of the socket has, and whether its append fails."""

    messages: Sequence[Sent]
    fails: bool = False
    commits: bool = True


class NaiveLog:
    """Subjects in order; an expectation is looked up from the end."""

    def __init__(self) -> None:
        self.subjects: list[str] = []

    def last(self, pattern: str) -> int:
        for place in range(len(self.subjects) - 1, -1, -1):
            if matches(pattern.encode(), self.subjects[place].encode()):
                return START + place + 1
        return 0


class World(Way):
    def __init__(self) -> None:
        super().__init__(in_flight_bytes_max=1 << 20, message_bytes_max=1000)

    def take(self, frames: bytes, *, fails: bool, commits: bool) -> None:
        self.partition.fault = StorageFull("no room") if fails else None
        self.read(frames)
        if commits:
            self.partition.commit()

    def said(self) -> dict[int, object]:
        """Since it was last asked. By reply: the sequence, or the error's number and text."""
        found: dict[int, object] = {}
        for reply, answer in self.told():
            error = answer.get("error")
            told = (error["err_code"], error["description"]) if error else answer["seq"]
            found[int(reply.removeprefix("r."))] = told
        return found


def expected_of(log: NaiveLog, message: Sent) -> tuple[int, int]:
    """What the message says, and what is so."""
    last = log.last(message.pattern or message.subject)
    return max(0, last - (message.behind or 0)), last


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.builds(Read, st.lists(sent, max_size=6), st.booleans(), st.booleans()), max_size=6)
)
def test_each_is_judged_by_all_before_it(reads: list[Read]) -> None:
    """Those before it in the same read, too, and none that was not stored."""
    asyncio.run(tell(reads))


async def tell(reads: list[Read]) -> None:
    world, log = World(), NaiveLog()
    wanted: dict[int, object] = {}
    said: dict[int, object] = {}
    committed = 0
    for read in reads:
        ahead, frames = NaiveLog(), b""
        ahead.subjects = list(log.subjects)
        early: set[int] = set()
        """Refused because of what is not committed yet, or not even appended."""
        for message in read.messages:
            says, is_so = expected_of(ahead, message)
            reply = len(wanted)
            frames += message.frame(reply, says)
            is_conflict = message.behind is not None and says != is_so
            if read.fails and (not is_conflict or len(ahead.subjects) > len(log.subjects)):
                wanted[reply] = (10077, "storage is full")
            elif is_conflict:
                wanted[reply] = (10071, f"wrong last sequence: {is_so}")
                early |= {reply} if len(ahead.subjects) > committed else set()
            else:
                wanted[reply] = START + len(ahead.subjects) + 1
            if not is_conflict:
                ahead.subjects.append(message.subject)
        if not read.fails:
            log = ahead
        world.take(frames, fails=read.fails, commits=read.commits)
        said |= world.said()
        if read.commits:
            committed = len(log.subjects)
        else:
            assert not early & said.keys()
    world.partition.commit()
    assert said | world.said() == wanted


async def test_an_index_that_is_not_there_is_waited_for() -> None:
    world = World()
    world.partition.subjects.is_known = False
    message = Sent("a", 0)
    world.take(message.frame(0, 0), fails=False, commits=True)
    assert world.partition.subjects.wanted
    world.partition.subjects.is_known = True
    world.take(message.frame(1, 0) + message.frame(2, START + 1), fails=False, commits=True)
    text = "expected last sequence per subject temporarily unavailable"
    assert world.said() == {0: (10163, text), 1: START + 1, 2: START + 2}
    world.ingest.close()
    assert not world.partition.subjects.wanted


async def test_who_expects_nothing_has_no_index_made() -> None:
    world = World()
    world.take(Sent("a", None).frame(0, 0) * 3, fails=False, commits=True)
    assert not world.partition.subjects.wanted
    assert world.partition.subjects._index.next_offset == START
