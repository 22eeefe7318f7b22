"""The members of one consumer group, all in this process, and how long until each has its share.

``python -m benchmarks.group_members ...`` prints one line of JSON: ``formed_s`` from the last join
until all are assigned, ``joined_s`` the same where one more comes to a group that is at work, and
``left_s`` from when that one leaves.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.connection import BenchmarkError

TIMEOUT_S: Final = 120.0
PAUSE_S: Final = 0.001


class Member:
    """A confluent-kafka consumer with its default settings; ``share`` is what it is assigned."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        from confluent_kafka import Consumer

        settings = {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False}
        self._consumer = Consumer(settings)
        self.share: frozenset[int] | None = None
        """None while there is no assignment, or it is being taken away."""
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def poll(self) -> None:
        message = self._consumer.poll(0)
        if message is not None and message.error():
            raise BenchmarkError(str(message.error()))

    def leave(self) -> None:
        self._consumer.close()

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self.share = frozenset(it.partition for it in partitions)

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self.share = None


def settled_s(members: Sequence[Member], partitions: int, since: float) -> float:
    """Poll all until every member is assigned, and every partition to one; seconds from then."""
    fair = {partitions // len(members), -(-partitions // len(members))}

    def is_settled() -> bool:
        shares = [member.share for member in members]
        held = [share for share in shares if share is not None]
        return (
            len(held) == len(members)
            and {len(share) for share in held} <= fair
            and len(frozenset().union(*held)) == partitions == sum(map(len, held))
        )

    deadline = since + TIMEOUT_S
    while not is_settled():
        for member in members:
            member.poll()
        if time.perf_counter() > deadline:
            held = sum(member.share is not None for member in members)
            raise BenchmarkError(f"{held} of {len(members)} are assigned within {TIMEOUT_S} s")
        time.sleep(PAUSE_S)
    return time.perf_counter() - since


def measure(servers: str, topic: str, count: int, partitions: int) -> dict[str, float]:
    """Raises BenchmarkError if the group does not come to rest."""
    group = f"{topic}-{time.time_ns()}"
    members = [Member(servers, group, topic) for _ in range(count)]
    formed_s = settled_s(members, partitions, time.perf_counter())
    last = Member(servers, group, topic)
    joined_s = settled_s([*members, last], partitions, time.perf_counter())
    left = time.perf_counter()
    last.leave()
    left_s = settled_s(members, partitions, left)
    for member in members:
        member.leave()
    return {"formed_s": formed_s, "joined_s": joined_s, "left_s": left_s, "messages": count}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="host:port")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True, help="of the topic")
    parser.add_argument("--members", type=int, required=True)
    options = parser.parse_args()
    try:
        result = measure(options.server, options.topic, options.members, options.partitions)
    except (BenchmarkError, OSError) as error:
        print(json.dumps({"failed": str(error) or type(error).__name__}))
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
