import asyncio
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Final

import typer

from streamlog.cli.options import options as o
from streamlog.cli.options.nats_options import nats_settings
from streamlog.cli.output import print_json, say
from streamlog.errors import ConfigError

WILDCARDS: Final = frozenset({"*", ">"})


def publish(
    subject: Annotated[str, typer.Argument(help="The NATS subject.")],
    payload: Annotated[str, typer.Argument(help="The message; - reads standard input.")] = "-",
    count: Annotated[int, typer.Option(min=1, help="Publish it so many times.")] = 1,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a message.")] = False,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="NAME:VALUE; may be repeated.")
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Wait until it is stored for good.")] = False,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    as_json: o.Json = False,
) -> None:
    """Publish to a subject, as any NATS client would."""
    _check_subject(subject)
    headers = dict(_header(text) for text in header or ())
    payloads = _payloads(payload, count, lines=lines)
    started = time.monotonic()
    summary = asyncio.run(_publish(nats, creds, subject, payloads, headers, ack=ack))
    summary["seconds"] = round(time.monotonic() - started, 3)
    if as_json:
        print_json(summary)
    elif ack and summary["published"]:
        first, last = summary["first_offset"], summary["last_offset"]
        where = f"offset {first}" if first == last else f"offsets {first} to {last}"
        say(f"{summary['published']} stored in {summary['stream']}, {where}")
    else:
        say(f"{summary['published']} published")
        if summary.get("stored") is False:
            say(f"no stream stores {subject!r}: it is not kept", to_stderr=True)


async def _publish(
    nats: str,
    creds: str | None,
    subject: str,
    payloads: Iterable[bytes],
    headers: Mapping[str, str],
    *,
    ack: bool,
) -> dict[str, object]:
    from streamlog.nats_tools.publisher import Publisher

    published, duplicates = 0, 0
    stored: dict[str, object] = {}
    async with Publisher(nats_settings(nats, creds)) as publisher:
        if not ack:
            for payload in payloads:
                await publisher.send(subject, payload, headers)
                published += 1
            await publisher.flush()
            stored_by = await publisher.streams_of(subject, o.DOMAIN)
            told = {} if stored_by is None else {"stored": bool(stored_by)}
            return {"published": published, **told}
        async for answer in publisher.publish_all(subject, payloads, headers):
            published += 1
            duplicates += answer.duplicate
            stored.setdefault("stream", answer.stream)
            stored.setdefault("first_offset", answer.sequence - 1)
            stored["last_offset"] = answer.sequence - 1
    return {"published": published, "duplicates": duplicates, **stored}


def _check_subject(subject: str) -> None:
    """A wildcard is for who listens: what is published to one would be stored under its stars."""
    if WILDCARDS & set(subject.split(".")):
        remedy = "name one subject, without * and > as tokens"
        raise ConfigError("SUBJECT", f"{subject!r} is for many subjects", remedy)


def _payloads(payload: str, count: int, *, lines: bool) -> Iterator[bytes]:
    if lines:
        found = (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
        source = found if payload == "-" else iter(payload.encode().splitlines())
        for line in source:
            for _ in range(count):
                yield line
        return
    data = sys.stdin.buffer.read() if payload == "-" else payload.encode()
    for _ in range(count):
        yield data


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not name or not colon:
        raise ConfigError("--header", f"{text!r} is no header", "write NAME:VALUE")
    return name.strip(), value.strip()
