"""A JetStream server and a node, which are asked and told the same."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.raw_publisher import RawPublisher
from tools.nodes.server_process import NatsServer

Message = tuple[str, bytes, bytes | None]
"""Subject, payload, header block."""


class JetStreamServer(NatsServer):
    """nats-server with JetStream."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.command = [*self.command, "-js", "-sd", str(directory / "jetstream")]
        self.stream_names = (f"s{number}" for number in itertools.count(1))
        """No name is given twice: nats-server removes the files of a deleted stream in the
        background, and a new stream of the name fails, or has the old messages, meanwhile.
        """


class Side(NamedTuple):
    """One of the two, with a publisher connected to it."""

    publisher: RawPublisher

    async def api(self, verb: str, **request: Any) -> dict[str, Any]:
        body = json.dumps(request).encode() if request else b""
        answer = await self.publisher.client.request(f"$JS.API.{verb}", body, timeout=5)
        reply: dict[str, Any] = json.loads(answer.data)
        return reply

    async def create(self, name: str, **config: Any) -> None:
        body = {"name": name, "subjects": [name, f"{name}.>"], "storage": "file", **config}
        reply = await self.api(f"STREAM.CREATE.{name}", **body)
        assert "error" not in reply, reply

    async def state(self, name: str) -> dict[str, Any]:
        state = (await self.api(f"STREAM.INFO.{name}"))["state"]
        return {key: state[key] for key in ("messages", "first_seq", "last_seq")}


class Pair:
    """The two of them."""

    def __init__(self, theirs: Side, ours: Side, stream_names: Iterator[str]) -> None:
        self.sides = (theirs, ours)
        self._stream_names = stream_names

    def new_name(self) -> str:
        """A name that no stream of the two has or had."""
        return next(self._stream_names)

    async def create(self, name: str | None = None, **config: Any) -> str:
        """Create a stream on both; its name, by default a new one."""
        name = name or self.new_name()
        for side in self.sides:
            await side.create(name, **config)
        return name

    async def tell(self, name: str, messages: list[Message]) -> list[Any]:
        """Publish them one by one on both; what both answered."""
        theirs, ours = [
            [comparable(await side.publisher.ask(*message)) for message in messages]
            for side in self.sides
        ]
        assert ours == theirs
        assert await self.sides[1].state(name) == await self.sides[0].state(name)
        return ours


def comparable(answer: Any) -> Any:
    return {key: value for key, value in (answer or {}).items() if key != "domain"}
