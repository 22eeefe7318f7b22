"""A failing story made smaller: which of its blows it needs. Pure but for the stories that ``fails`` plays."""

from collections.abc import Callable, Sequence
from typing import Final

STORIES_MAX: Final = 200

Fails = Callable[[frozenset[int]], bool]
"""Whether the story still fails if these blows are left out."""


def needed(kinds: Sequence[str], fails: Fails, *, stories_max: int = STORIES_MAX) -> list[int]:
    """The numbers of the blows that are left, out of those of ``kinds``, the failing story's: without any one of them
    it does not fail, unless the number of stories did not suffice to find out.

    First the last ones go, then those of one kind at a time, then halves, quarters and so on (Zeller's ddmin).
    What is left out changes what is drawn for the rest, so a smaller story is another one that fails, too.
    """
    left = list(range(len(kinds)))
    count = 0

    def go_without(blows: list[int]) -> bool:
        nonlocal left, count
        kept = [number for number in left if number not in blows]
        if len(kept) == len(left) or count >= stories_max:
            return False
        count += 1
        if not fails(frozenset(range(len(kinds))) - set(kept)):
            return False
        left = kept
        return True

    while len(left) > 1 and go_without(left[len(left) // 2 :]):
        pass
    for kind in sorted(set(kinds)):
        go_without([number for number in left if kinds[number] == kind])
    size = max(1, len(left) // 2)
    while left:
        parts = [left[place : place + size] for place in range(0, len(left), size)]
        is_smaller = sum(map(go_without, parts)) > 0
        if size == 1 and not is_smaller:
            break
        size = max(1, size // 2)
    return left
