"""The same publishes to a JetStream server and to streamlog: the answers are compared."""

from base64 import b64decode
from typing import Any

import pytest

from tests.integration.jetstream_pair import Message, Pair, comparable
from tests.integration.raw_publisher import RawPublisher, header_block


def told(answers: list[Any]) -> list[int | None]:
    """The sequence of each positive answer, the error code of each other one."""
    return [
        answer["error"]["err_code"] if "error" in answer else answer.get("seq")
        for answer in answers
    ]


def publish(subject: str, *lines: str | bytes, payload: bytes = b"x") -> Message:
    return subject, payload, header_block(*lines) if lines else None


HEADERS: dict[str, list[tuple[str | bytes, ...]]] = {
    "stream": [
        ("Nats-Expected-Stream: {name}",),
        ("Nats-Expected-Stream: other",),
        ("Nats-Expected-Stream:",),
        ("nats-expected-stream: other",),
        ("Nats-Expected-Stream: {name} ",),
        ("Nats-Expected-Stream:{name}",),
    ],
    "last sequence": [
        ("Nats-Expected-Last-Sequence: 0",),
        ("Nats-Expected-Last-Sequence: 0",),
        ("Nats-Expected-Last-Sequence: 1",),
        ("Nats-Expected-Last-Sequence: 3",),
        ("Nats-Expected-Last-Sequence: x",),
        ("Nats-Expected-Last-Sequence:",),
        ("Nats-Expected-Last-Sequence: -1",),
        ("Nats-Expected-Last-Sequence: 002",),
        ("Nats-Expected-Last-Sequence: 99999999999999999999999",),
        ("Nats-Expected-Last-Sequence: 4", "Nats-Expected-Last-Sequence: 5"),
    ],
    "message ids": [
        ("Nats-Msg-Id: a",),
        ("Nats-Msg-Id: a",),
        ("Nats-Msg-Id:",),
        ("Nats-Msg-Id: b",),
        ("Nats-Msg-Id: a", "Nats-Expected-Last-Sequence: 9"),
        ("nats-msg-id: a",),
        ("Nats-Msg-Id: a", "Nats-Expected-Last-Msg-Id: z"),
        ("Nats-Msg-Id: c", "Nats-Msg-Id: a"),
        ("Nats-Msg-Id: c",),
    ],
    "last message id": [
        ("Nats-Expected-Last-Msg-Id: a",),
        ("Nats-Msg-Id: a",),
        ("Nats-Expected-Last-Msg-Id: a", "Nats-Msg-Id: b"),
        ("Nats-Expected-Last-Msg-Id: a",),
        ("Nats-Expected-Last-Msg-Id: b",),
        ("Nats-Expected-Last-Msg-Id: b",),
        ("Nats-Expected-Last-Msg-Id:",),
    ],
    "api level": [
        ("Nats-Required-Api-Level: 0",),
        ("Nats-Required-Api-Level: 99",),
        ("Nats-Required-Api-Level: x",),
    ],
    "switched off": [
        ("Nats-Incr: 1",),
        ("Nats-Incr: -1",),
        ("Nats-Incr: x",),
        ("Nats-Incr:",),
        ("Nats-Schedule: @at 2030-01-01T00:00:00Z",),
        ("Nats-Schedule: x",),
        ("Nats-Schedule:",),
        ("Nats-Schedule-Target: a",),
        ("Nats-Schedule-Next: purge",),
        ("Nats-Schedule-Next: x",),
        ("Nats-Scheduler: x",),
        ("Nats-Schedule-Next: purge", "Nats-Scheduler: x"),
        ("Nats-Stream-Source: x",),
        ("Nats-Stream-Source:",),
        ("Nats-Batch-Id: a", "Nats-Batch-Sequence: 1"),
        ("Nats-Batch-Sequence: 1",),
        ("Nats-Batch-Commit: 1",),
        ("Nats-Batch-Id:",),
        ("Nats-Batch-Id: " + "x" * 65,),
    ],
    "order": [
        ("Nats-Msg-Id: a",),
        ("Nats-Incr: 1", "Nats-Expected-Stream: other"),
        ("Nats-Expected-Stream: other", "Nats-Expected-Last-Sequence: 9"),
        ("Nats-Expected-Last-Sequence: 9", "Nats-Schedule: x"),
        ("Nats-Schedule: x", "Nats-Stream-Source: x"),
        ("Nats-Stream-Source: x", "Nats-Msg-Id: a"),
        ("Nats-Msg-Id: a", "Nats-Expected-Last-Msg-Id: z", "Nats-Expected-Stream: {name}"),
        ("Nats-Expected-Last-Msg-Id: z", "Nats-Rollup: all"),
    ],
    "unknown": [
        ("Nats-Unknown: 1",),
        ("Nats-Sequence: 5",),
        ("Nats-Stream: x",),
        ("Nats-Subject: y",),
        ("Nats-Time-Stamp: 1",),
        ("Nats-Marker-Reason: MaxAge",),
        ("Nats-Last-Sequence: 3",),
    ],
    "malformed": [
        (b"Nats-Msg-Id",),
        (b": a",),
        (b"Nats-Msg-Id a",),
        (b" Nats-Msg-Id: a",),
        (b"X: Nats-Msg-Id: a",),
        (b"X: \xff\xfe",),
        (b"\xff: 1",),
        (b"Nats-\xff: 1",),
        (b"Nats-Expected-Stream : other",),
        (b"A: 1", b"A", b"Nats-Expected-Stream: other"),
    ],
}


@pytest.mark.parametrize("story", HEADERS)
async def test_headers_one_by_one(pair: Pair, story: str) -> None:
    name = await pair.create()
    messages = []
    for lines in HEADERS[story]:
        filled = (line.replace("{name}", name) if isinstance(line, str) else line for line in lines)
        messages.append(publish(name, *filled))
    await pair.tell(name, messages)


@pytest.mark.parametrize(
    "block",
    [
        b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\n", b"NATS/1.0", b"\r\n", b"NATS/1.0 503\r\n\r\n",
        b"garbage", b"NATS/1.0\r\nA: 1\r\n",
        b"NATS/1.0\r\nNats-Expected-Stream: other\r\n",
    ],
)  # fmt: skip
async def test_header_blocks_that_are_broken(pair: Pair, block: bytes) -> None:
    name = await pair.create()
    await pair.tell(name, [(name, b"x", block), (name, b"y", None)])


async def test_sizes(pair: Pair) -> None:
    name = await pair.create(max_msg_size=1000)
    await pair.tell(
        name,
        [
            publish(name, payload=b"x" * 1000),
            publish(name, payload=b"x" * 1001),
            publish(name, "A: " + "x" * 900, payload=b"x" * 90),
            publish(name, "A: " + "x" * 900, payload=b"x" * 60),
            publish(name, "Nats-Msg-Id: a", payload=b"x" * 2000),
            publish(name, "Nats-Msg-Id: a", payload=b"x"),
        ],
    )


async def test_long_ids(pair: Pair) -> None:
    name = await pair.create()
    lines = (f"Nats-Msg-Id: {'x' * size}" for size in (1, 1000, 60_000, 60_000))
    assert told(await pair.tell(name, [publish(name, line) for line in lines])) == [1, 2, 3, 3]


async def test_a_sealed_stream(pair: Pair) -> None:
    name = await pair.create(allow_atomic=True)
    await pair.tell(name, [publish(name, "Nats-Msg-Id: a"), Batch(name)(1)])
    replies = []
    for side in pair.sides:
        config = (await side.api(f"STREAM.INFO.{name}"))["config"]
        assert "error" not in await side.api(f"STREAM.UPDATE.{name}", **{**config, "sealed": True})
        said = [
            await side.api(f"STREAM.PURGE.{name}", keep=1),
            await side.api(f"STREAM.UPDATE.{name}", **{**config, "sealed": False}),
            await side.api("STREAM.CREATE.born", name="born", sealed=True),
        ]
        replies.append([reply.get("error") for reply in said])
    assert replies[0] == replies[1]
    story = [
        publish(name), publish(name, "Nats-Msg-Id: a"), Batch(name)(2, commit="1"),
        publish(name, "Nats-Expected-Stream: other"),
    ]  # fmt: skip
    assert set(told(await pair.tell(name, story))) == {10109}


async def test_headers_of_more_than_64_kib_are_taken_here(pair: Pair) -> None:
    """JetStream counts their bytes in two; for a record they are no different from others."""
    name = await pair.create()
    message = publish(name, "A: " + "x" * 70_000)
    theirs, ours = [comparable(await side.publisher.ask(*message)) for side in pair.sides]
    assert theirs["error"]["err_code"] == 10097
    assert ours == {"stream": name, "seq": 1}


async def test_a_reply_that_is_jetstreams_own_is_refused_by_the_server(pair: Pair) -> None:
    name = await pair.create()
    for side in pair.sides:
        url = side.publisher.client.connected_url
        assert url is not None
        async with RawPublisher(str(url.geturl())) as other:
            await other.send(name, b"x", reply="$JS.ACK.s.c.1.1.1.1.0")
    await pair.tell(name, [publish(name)])


class Batch:
    """Messages of a batch, by its id."""

    def __init__(self, subject: str, batch_id: str = "b") -> None:
        self._subject, self._id = subject, batch_id

    def __call__(
        self, sequence: object, *lines: str, commit: str | None = None, payload: bytes = b"x"
    ) -> Message:
        asked = [f"Nats-Batch-Id: {self._id}", f"Nats-Batch-Sequence: {sequence}", *lines]
        if commit is not None:
            asked.append(f"Nats-Batch-Commit: {commit}")
        return publish(self._subject, *asked, payload=payload)


async def test_a_batch(pair: Pair) -> None:
    name = await pair.create(allow_atomic=True)
    batch = Batch(name)
    story = [publish(name), batch(1), batch(2), publish(name), batch(3, commit="1"), publish(name)]
    assert told(await pair.tell(name, story)) == [1, None, None, 2, 5, 6]


async def test_a_batch_that_ends_without_a_message(pair: Pair) -> None:
    name = await pair.create(allow_atomic=True)
    batch = Batch(name)
    answers = await pair.tell(name, [batch(1), batch(2), batch(3, commit="eob")])
    assert answers[-1] == {"stream": name, "seq": 2, "batch": "b", "count": 2}


async def test_the_api_level_stays_in_a_batch_as_it_is_stored(pair: Pair) -> None:
    name = await pair.create(allow_atomic=True)
    await pair.tell(name, [Batch(name)(1, "Nats-Required-Api-Level: 2", commit="1")])
    stored = [(await side.api(f"STREAM.MSG.GET.{name}", seq=1))["message"] for side in pair.sides]
    is_there = [b"Nats-Required-Api-Level: 2" in b64decode(it["hdrs"]) for it in stored]
    assert is_there == [False, True]


async def test_a_batch_of_one(pair: Pair) -> None:
    name = await pair.create(allow_atomic=True)
    assert told(await pair.tell(name, [Batch(name)(1, commit="1")])) == [1]


STORIES: dict[str, list[tuple[Any, ...]]] = {
    "gap": [(1,), (3,), (2, "commit", "1")],
    "repeated": [(1,), (1,), (2, "commit", "1")],
    "no beginning": [(2,), (1,), (2, "commit", "1")],
    "zero": [(0,), (1, "commit", "1")],
    "no number": [("x",), ("-1",), ("",), (1, "commit", "1")],
    "bad commit": [(1,), (2, "commit", "2"), (2, "commit", "1")],
    "empty commit": [(1,), (2, "commit", ""), (2, "commit", "1")],
    "bad commit at once": [(1, "commit", "yes"), (1, "commit", "1")],
    "nothing but an end": [(1, "commit", "eob"), (1, "commit", "1")],
    "after the end": [(1,), (2, "commit", "1"), (3,), (3, "commit", "1")],
    "again": [(1, "commit", "1"), (1, "commit", "1")],
    "api level": [(1,), (2, "Nats-Required-Api-Level: 99"), (2, "commit", "1")],
    "api level no number": [(1, "Nats-Required-Api-Level: x"), (1, "commit", "1")],
    "api level that is met": [(1, "Nats-Required-Api-Level: 2"), (2, "commit", "1")],
    "last message id": [(1, "Nats-Expected-Last-Msg-Id: x"), (2, "commit", "1")],
    "last sequence": [(1, "Nats-Expected-Last-Sequence: 0"), (2, "commit", "1")],
    "wrong last sequence": [(1, "Nats-Expected-Last-Sequence: 5"), (2, "commit", "1")],
    "late last sequence": [(1,), (2, "Nats-Expected-Last-Sequence: 1"), (3, "commit", "1")],
    "late wrong one": [(1,), (2, "Nats-Expected-Last-Sequence: 9"), (3, "commit", "1")],
    "subject sequence": [(1, "Nats-Expected-Last-Subject-Sequence: 0"), (2, "commit", "1")],
    "wrong subject sequence": [(1, "Nats-Expected-Last-Subject-Sequence: 5"), (2, "commit", "1")],
    "late subject sequence": [
        (1,),
        (2, "Nats-Expected-Last-Subject-Sequence: 0"),
        (3, "commit", "1"),
    ],
    "sequence of another subject": [
        (1,),
        (
            2,
            "Nats-Expected-Last-Subject-Sequence: 0",
            "Nats-Expected-Last-Subject-Sequence-Subject: other",
            "commit",
            "1",
        ),
    ],
    "sequence of no subject": [
        (1, "Nats-Expected-Last-Subject-Sequence-Subject: other"),
        (2, "commit", "1"),
    ],
    "wrong stream": [(1, "Nats-Expected-Stream: other"), (2, "commit", "1")],
    "repeated id": [(1, "Nats-Msg-Id: i"), (2, "Nats-Msg-Id: i", "commit", "1")],
    "ids": [(1, "Nats-Msg-Id: i"), (2, "Nats-Msg-Id: j", "commit", "1")],
    "counter": [(1, "Nats-Incr: 1"), (2, "commit", "1")],
    "schedule": [(1, "Nats-Schedule: x"), (2, "commit", "1")],
    "source": [(1, "Nats-Stream-Source: x"), (2, "commit", "1")],
}


@pytest.mark.parametrize("story", STORIES)
async def test_batches_that_do_not_hold(pair: Pair, story: str) -> None:
    name = await pair.create(allow_atomic=True)
    batch = Batch(name)
    messages = []
    for step in STORIES[story]:
        commit = step[-1] if "commit" in step else None
        lines = step[1 : step.index("commit")] if "commit" in step else step[1:]
        messages.append(batch(step[0], *lines, commit=commit))
    await pair.tell(name, [*messages, publish(name)])


async def test_an_id_of_the_window_in_a_batch(pair: Pair) -> None:
    name = await pair.create(allow_atomic=True)
    batch = Batch(name)
    answers = await pair.tell(
        name,
        [
            publish(name, "Nats-Msg-Id: a"),
            batch(1, "Nats-Msg-Id: n"), batch(2, "Nats-Msg-Id: a", commit="1"),
            batch(1, "Nats-Msg-Id: n", commit="1"),
            publish(name, "Nats-Msg-Id: n"),
        ],
    )  # fmt: skip
    assert told(answers) == [1, None, 10201, 2, 2]


async def test_too_many_batches_and_too_long_ones(pair: Pair) -> None:
    name = await pair.create(allow_atomic=True)
    begun = [Batch(name, f"b{number}")(1) for number in range(51)]
    answers = await pair.tell(name, [*begun, Batch(name, "b0")(2, commit="1"), begun[-1]])
    assert told(answers) == [*[None] * 50, 10210, 2, None]
    assert told(await pair.tell(name, [Batch(name, "new")(1001), Batch(name, "new")(1000)])) == [
        10199, 10176,
    ]  # fmt: skip


async def test_a_batch_of_a_thousand_and_one_more(pair: Pair) -> None:
    name = await pair.create(allow_atomic=True)
    batch = Batch(name)
    for side in pair.sides:
        for number in range(1, 1000):
            await side.publisher.send(*batch(number))
    assert told(await pair.tell(name, [batch(1000), batch(1001, commit="1")])) == [None, 10199]
    for side in pair.sides:
        for number in range(1, 1001):
            await side.publisher.send(*batch(number))
    assert told(await pair.tell(name, [batch(1001, commit="eob")])) == [1000]


async def test_messages_of_a_batch_that_are_too_large(pair: Pair) -> None:
    name = await pair.create(allow_atomic=True, max_msg_size=200)
    batch = Batch(name)
    story = [batch(1), batch(2, payload=b"x" * 300), batch(2), batch(3, commit="1")]
    assert told(await pair.tell(name, story)) == [None, 10054, None, 3]


TRANSFORMS = {
    "wildcards": ("{n}.*.*", "{n}.new.$2.{{wildcard(1)}}"),
    "the rest": ("{n}.a.>", "{n}.moved.>"),
    "partition": ("{n}.*.*", "{n}.{{partition(7,1,2)}}.{{wildcard(1)}}"),
    "partition of all": ("{n}.>", "{{partition(1000)}}.>"),
    "split": ("{n}.*.*", "{n}.{{split(1,-)}}.{{SplitFromLeft(2,1)}}.{{splitfromright(2,2)}}"),
    "slice": ("{n}.*.*", "{n}.{{slicefromleft(1,2)}}.x.{{sliceFromRight(2,2)}}"),
    "ends": ("{n}.*.*", "{n}.{{left(1,2)}}.{{right(2,1)}}"),
    "no wildcard": ("{n}.a.b", "other"),
}


@pytest.mark.parametrize("kind", TRANSFORMS)
async def test_subjects_are_transformed(pair: Pair, kind: str) -> None:
    name = pair.new_name()
    source, destination = (text.replace("{n}", name) for text in TRANSFORMS[kind])
    await pair.create(name, subject_transform={"src": source, "dest": destination})
    subjects = [name, f"{name}.a.b", f"{name}.a-b-c.xyz", f"{name}.a.b.c", f"{name}.wxyz1.12345"]
    await pair.tell(name, [publish(subject) for subject in subjects])
    stored = [
        [
            (await side.api(f"STREAM.MSG.GET.{name}", seq=seq + 1))["message"]["subject"]
            for seq in range(len(subjects))
        ]
        for side in pair.sides
    ]
    assert stored[1] == stored[0]
    assert stored[1] != subjects


@pytest.mark.parametrize(
    ("source", "destination"),
    [("a.*", "b.$2"), ("a.>", "b"), ("a.*", "b.{{nothing(1)}}"), ("a..b", "c"), ("a", "b.>")],
)
async def test_transforms_that_are_none(pair: Pair, source: str, destination: str) -> None:
    wanted = {"src": source, "dest": destination}
    theirs, ours = [
        (await side.api("STREAM.CREATE.s", name="s", subject_transform=wanted))["error"]
        for side in pair.sides
    ]
    assert (ours["code"], ours["err_code"]) == (theirs["code"], theirs["err_code"])
    assert ours["description"].partition(":")[0] == theirs["description"].partition(":")[0]
