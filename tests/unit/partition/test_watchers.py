import asyncio
from collections.abc import Callable

from streamlog.partition.watchers import Watchers, until


def hearing(story: list[str], name: str) -> Callable[[], None]:
    return lambda: story.append(name)


def test_each_hears_of_its_own_end() -> None:
    watchers, story = Watchers(), list[str]()
    consumer, follower = hearing(story, "consumer"), hearing(story, "follower")
    watchers.add(consumer)
    watchers.add(follower, end=True)
    watchers.committed()
    watchers.grown()
    assert story == ["consumer", "follower"]
    watchers.changed()
    assert story[2:] == ["consumer", "follower"]
    watchers.replicas_changed()
    assert story.pop() == "consumer"
    watchers.remove(consumer)
    watchers.remove(follower)
    watchers.remove(follower)
    watchers.changed()
    assert len(story) == 4


def test_one_may_leave_or_bring_another_while_it_is_told() -> None:
    watchers, story = Watchers(), list[str]()
    last = hearing(story, "last")

    def once() -> None:
        story.append("once")
        watchers.remove(once)
        watchers.add(last)

    watchers.add(once)
    watchers.committed()
    watchers.committed()
    assert story == ["once", "last"]


class Watched:
    """A partition, as far as it is watched."""

    def __init__(self) -> None:
        self.watchers = Watchers()
        self.add_watcher = self.watchers.add
        self.remove_watcher = self.watchers.remove


async def test_who_waits_looks_at_each_change_and_leaves_then() -> None:
    partition, answers, looks = Watched(), [False, False, True], list[bool]()

    def condition() -> bool:
        looks.append(answers.pop(0))
        return looks[-1]

    waiting = asyncio.create_task(until(partition, condition))
    for count in (1, 2, 3):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(looks) == count
        partition.watchers.committed()
    await waiting
    assert not partition.watchers._of_commits
    await until(partition, lambda: True)
