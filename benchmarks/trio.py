"""Clusters of three under test: what the cases need of one, and requests that both answer."""

import contextlib
import json
import re
import select
import time
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from benchmarks.connection import BenchmarkError, Connection

HOST: Final = "127.0.0.1"
MEMBERS: Final = (1, 2, 3)
WHOLE_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.02
REQUEST_TIMEOUT_S: Final = 5.0
"""JetStream leaves requests unanswered while it elects; streamlog may wait for a controller."""

ASK_AGAIN_S: Final = 0.05

_NUMBER = re.compile(r"(\d+)$")


class Trio(Protocol):
    """Three servers that hold a replicated stream."""

    name: str

    @property
    def pids(self) -> Sequence[int]:
        """All servers on the way of a message."""
        ...

    @property
    def member_pids(self) -> Sequence[int]:
        """The three themselves."""
        ...

    def nats(self, *, without: int = 0) -> str:
        """Where a client connects that the death of that member does not touch."""
        ...

    def nats_of(self, member: int) -> str:
        """The shortest way to that member."""
        ...

    def controller(self) -> int: ...

    def pid(self, member: int) -> int: ...

    def start(self, member: int) -> None: ...

    def stop(self) -> None: ...


def number_in(name: str) -> int:
    """Of ``server-2`` or ``node-2``."""
    found = _NUMBER.search(name)
    if found is None:
        raise BenchmarkError(f"{name!r} names no member")
    return int(found[1])


def ask(
    trio: Trio, verb: str, body: Mapping[str, object] | None = None, *, without: int = 0
) -> dict[str, object]:
    """One request of JetStream's API; BenchmarkError if it is refused, or nobody answers."""
    with Connection(trio.nats(without=without)) as connection:
        connection.socket.settimeout(REQUEST_TIMEOUT_S)
        answer = connection.request(f"$JS.API.{verb}", json.dumps(body).encode() if body else b"")
    if "error" in answer:
        raise BenchmarkError(f"{trio.name}: {verb}: {answer['error']}")
    return answer


def ask_until_answered(
    trio: Trio, verb: str, body: Mapping[str, object] | None = None, *, without: int = 0
) -> dict[str, object]:
    """The same again while there is nobody to answer."""
    deadline = time.monotonic() + WHOLE_TIMEOUT_S
    while True:
        try:
            return ask(trio, verb, body, without=without)
        except (BenchmarkError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def ask_again_and_again(
    trio: Trio, verb: str, body: Mapping[str, object], *, without: int = 0
) -> None:
    """The same request each 50 ms, whatever comes back, until one of them is granted.

    One alone might go to a server that has just died, and be missed by nobody for seconds.
    """
    deadline = time.monotonic() + WHOLE_TIMEOUT_S
    data = json.dumps(body).encode()
    request = b"PUB $JS.API.%s _INBOX.again %d\r\n%s\r\n" % (verb.encode(), len(data), data)
    with Connection(trio.nats(without=without)) as connection:
        connection.subscribe("_INBOX.again", 1)
        seen = b""
        while b'"did_create"' not in seen:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{trio.name}: {verb} is not granted: {seen[-300:]!r}")
            connection.send(request)
            if select.select([connection.socket], [], [], ASK_AGAIN_S)[0]:
                seen = seen[-2048:] + connection.receive()


def create_stream(
    trio: Trio,
    name: str,
    *,
    metadata: Mapping[str, str] | None = None,
    wait: bool = True,
) -> None:
    """A stream of that name and subject with three replicas; ``metadata``: of streamlog alone.

    ``wait`` until all replicas are current.
    """
    config: dict[str, object] = {
        "name": name,
        "subjects": [name],
        "storage": "file",
        "retention": "limits",
        "num_replicas": 3,
    }
    if metadata and trio.name == "streamlog":
        config["metadata"] = dict(metadata)
    ask_until_answered(trio, f"STREAM.CREATE.{name}", config)
    if wait:
        wait_whole(trio, name)


def delete_stream(trio: Trio, name: str) -> None:
    """An answer may be lost with a server, so a stream that is not there is as good."""
    try:
        ask_until_answered(trio, f"STREAM.DELETE.{name}")
    except BenchmarkError as error:
        if "not found" not in str(error):
            raise


def leader(trio: Trio, stream: str) -> int:
    """The member that leads the stream."""
    return number_in(str(wait_whole(trio, stream)["leader"]))


def wait_whole(trio: Trio, stream: str) -> Mapping[str, object]:
    """Wait until the stream has a leader and all its replicas are current; its ``cluster``."""
    deadline = time.monotonic() + WHOLE_TIMEOUT_S
    cluster: object = None
    while time.monotonic() < deadline:
        with contextlib.suppress(BenchmarkError, OSError):
            cluster = ask(trio, f"STREAM.INFO.{stream}").get("cluster")
            if isinstance(cluster, dict) and cluster.get("leader"):
                replicas = cluster.get("replicas", [])
                if all(one["current"] and not one.get("offline") for one in replicas):
                    return cluster
        time.sleep(POLL_S)
    raise BenchmarkError(f"{trio.name}: {stream} is not whole: {cluster}")
