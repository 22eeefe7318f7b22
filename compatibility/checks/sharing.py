"""A share group: two members share the records of one partition, and each is accepted once."""

import time
from collections import defaultdict
from typing import Final, NamedTuple, Self

from compatibility.checks.check import same, same_records
from compatibility.outcome import Failed
from compatibility.program import Line, Program
from compatibility.scene import Scene, value, values

EACH: Final = 20
"""Records of a round; rounds follow each other until both members had some."""
RELEASED: Final = 5
SETTLE_TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.25


class Answer(NamedTuple):
    """To a record, once the node has taken it."""

    offset: int
    value: str
    deliveries: int
    is_accepted: bool

    @classmethod
    def of(cls, line: Line) -> Self:
        return cls(
            int(line["offset"]), str(line["value"]), int(line["deliveries"]), bool(line["accepted"])
        )


def share_group(scene: Scene) -> str:
    """What was released is delivered again, with a higher count; what was accepted is not."""
    topic = scene.topic()
    group = f"{topic}-s"
    scene.cluster.configure_group(group, "share.auto.offset.reset", "earliest")
    ask = {"topic": topic, "group": group}
    members = {
        "a": scene.start("share", **ask, client_id="a", release=RELEASED),
        "b": scene.start("share", **ask, client_id="b"),
    }
    answers: dict[str, list[Answer]] = defaultdict(list)
    published, deadline = 0, time.monotonic() + SETTLE_TIMEOUT_S
    while any(not _accepted(answers[name]) for name in members):
        scene.publish(topic, values(published, published + EACH))
        published += EACH
        _collect(members, answers)
        if time.monotonic() > deadline:
            names = [name for name in members if not _accepted(answers[name])]
            raise Failed(f"member {', '.join(names)} had none of {published} records")
        time.sleep(POLL_S)
    while len({it.offset for got in answers.values() for it in _accepted(got)}) < published:
        _collect(members, answers)
        if time.monotonic() > deadline:
            count = len({it.offset for got in answers.values() for it in _accepted(got)})
            raise Failed(f"{count} of {published} records were accepted")
        time.sleep(POLL_S)
    for name, member in members.items():
        answers[name] += map(Answer.of, member.finish())
    check_answers([it for got in answers.values() for it in got], published)
    _go_on(scene, ask, published)
    return ""


def _collect(members: dict[str, Program], answers: dict[str, list[Answer]]) -> None:
    for name, member in members.items():
        answers[name] += map(Answer.of, member.lines())
        if (said := member.failure()) is not None:
            raise Failed(f"member {name}: {said}")


def _accepted(answers: list[Answer]) -> list[Answer]:
    return [it for it in answers if it.is_accepted]


def check_answers(answers: list[Answer], published: int) -> None:
    """Each record as it was written, accepted once, and after each of its releases."""
    for it in answers:
        same(it.value, value(it.offset), f"record {it.offset}")
    accepted = sorted(_accepted(answers))
    same([it.offset for it in accepted], list(range(published)), "offsets accepted")
    released = [it for it in answers if not it.is_accepted]
    same(len(released), RELEASED, "records released")
    for it in released:
        if accepted[it.offset].deliveries <= it.deliveries:
            raise Failed(
                f"record {it.offset} was accepted at delivery {accepted[it.offset].deliveries},"
                f" and released at delivery {it.deliveries}"
            )


def _go_on(scene: Scene, ask: dict[str, str], published: int) -> None:
    """Another member has what is new, and nothing of what was accepted."""
    new = values(published, published + EACH)
    member = scene.start("share", **ask, client_id="c")
    scene.publish(ask["topic"], new)
    same_records(member.records(EACH), new, published)
    same(member.finish(), [], "more than what is new")
