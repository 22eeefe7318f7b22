"""What STREAM.INFO counts and lists of deleted messages, compared with nats-server: as long as no message follows."""

from typing import Any

from tests.integration.jetstream_pair import Pair, Side

TOLD = ("messages", "first_seq", "last_seq", "num_deleted", "deleted")


async def told(side: Side, name: str) -> dict[str, Any]:
    state = (await side.api(f"STREAM.INFO.{name}", deleted_details=True))["state"]
    return {key: state.get(key) for key in TOLD}


async def test_only_messages_are_counted(pair: Pair) -> None:
    """An erasure behind the last message is no sequence that a user has seen."""
    name = await pair.create()
    await pair.tell(name, [(f"{name}.{at % 3}", b"%d" % at, None) for at in range(12)])
    requests: list[tuple[str, dict[str, Any]]] = [
        ("STREAM.MSG.DELETE", {"seq": 5}),
        ("STREAM.MSG.DELETE", {"seq": 12}),
        ("STREAM.MSG.DELETE", {"seq": 1}),
        ("STREAM.PURGE", {"filter": f"{name}.1"}),
        ("STREAM.PURGE", {"filter": f"{name}.2", "keep": 1}),
    ]
    for verb, request in requests:
        for side in pair.sides:
            answer = await side.api(f"{verb}.{name}", **request)
            assert answer.get("success"), answer
        theirs, ours = [await told(side, name) for side in pair.sides]
        assert ours == theirs, request


async def test_a_message_has_come_since(pair: Pair) -> None:
    """Then the erasure is a sequence like that of a deleted message: numbers and sequences always fit together."""
    name = await pair.create()
    ours = pair.sides[1]
    await pair.tell(name, [(name, b"%d" % at, None) for at in range(3)])
    await ours.api(f"STREAM.MSG.DELETE.{name}", seq=2)
    assert (await ours.publisher.ask(name, b"", None) or {})["seq"] == 5
    assert await told(ours, name) == {
        "messages": 3, "first_seq": 1, "last_seq": 5, "num_deleted": 2, "deleted": [2, 4],
    }  # fmt: skip
