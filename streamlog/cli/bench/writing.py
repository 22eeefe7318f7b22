"""What the commands that publish share: their options, and what they say about the stream."""

from collections.abc import Iterable
from typing import Annotated

import typer

from streamlog.cli.output import say
from streamlog.errors import ConfigError

Subject = Annotated[
    str, typer.Argument(help="A NATS subject of the stream; best one of a stream made for this.")
]
Size = Annotated[int, typer.Option(min=0, metavar="BYTES", help="Of each message.")]


def check_subject(subject: str) -> None:
    """Raises ConfigError: what follows is written as bytes, so it must be one plain word."""
    tokens = subject.split(".")
    if not (subject.isprintable() and " " not in subject and all(tokens)) or {"*", ">"} & {*tokens}:
        remedy = "name one subject, without blanks and wildcards"
        raise ConfigError("SUBJECT", f"{subject!r} cannot be published to", remedy)


def announce(stream: str) -> None:
    """Said before the clock starts, and not on standard output: it is no figure."""
    say(f"writing into stream {stream}", to_stderr=True)


def silent(_: str) -> None:
    """Nothing is said beside JSON."""


def print_figures(figures: Iterable[tuple[str, str]]) -> None:
    """Name and value, one a line; the values end under each other."""
    lines = list(figures)
    names = max(len(name) for name, _ in lines)
    values = max(len(value) for _, value in lines)
    for name, value in lines:
        say(f"  {name:<{names}}  {value:>{values}}")


def say_how_to_remove(stream: str, base_offset: int, last_offset: int) -> None:
    say(
        f"stream {stream} keeps what was written, as offsets {base_offset} to {last_offset};"
        f" `streamlog stream purge {stream}` removes that and all else in it"
    )
