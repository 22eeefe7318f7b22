"""The contract of client programs, for those in Python; see ``compatibility``."""

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

WORDS = {"share": "share groups", "transact": "transactions"}
"""For verbs, in what readers of the table are told."""


class NotOffered(Exception):
    """The client has no call for it."""


def put(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def put_record(partition: int, offset: int, value: bytes) -> None:
    put(partition=partition, offset=offset, value=value.decode())


def put_answer(
    partition: int, offset: int, value: bytes, deliveries: int, is_accepted: bool
) -> None:
    """Of a member of a share group."""
    place = {"partition": partition, "offset": offset}
    put(**place, value=value.decode(), deliveries=deliveries, accepted=is_accepted)


def input_lines() -> Iterator[str]:
    """Values to produce, or calls to make."""
    for line in sys.stdin:
        yield line.rstrip("\n")


def end_of_input() -> threading.Event:
    """Set when there is no more: the program is to end."""
    ended = threading.Event()

    def wait() -> None:
        while sys.stdin.readline():
            pass
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def answer_calls(calls: dict[str, Callable[..., dict[str, Any] | None]]) -> None:
    """``admin`` and ``transact``: a function for each operation that the client has."""
    for line in input_lines():
        arguments = json.loads(line)
        call = calls.get(arguments.pop("op"))
        if call is None:
            put(not_offered="no such call")
            continue
        try:
            put(**(call(**arguments) or {}))
        except NotOffered as reason:
            put(not_offered=str(reason))
        except Exception as error:
            put(error=f"{type(error).__name__}: {error}")


def run(version: Callable[[], str], verbs: dict[str, Callable[..., None]]) -> None:
    """The program: ``verbs`` take the servers and their arguments."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    servers, verb, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    if verb == "version":
        put(version=version())
        return
    if verb not in verbs:
        put(not_offered=f"no {WORDS.get(verb, verb)}")
        return
    try:
        verbs[verb](servers, **arguments)
    except NotOffered as reason:
        put(not_offered=str(reason))
    except Exception as error:
        put(error=f"{type(error).__name__}: {error}")
        sys.exit(1)
