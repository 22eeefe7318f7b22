"""Names of streams, filtered or sorted, kept from one look to the next. Pure.

Each list is made once, and moved along by what has changed: a look costs the page that is shown.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from streamlog.http.console.overview import Overview

BUILT_AT_ONCE: Final = 500
"""Names of a sorted list that are looked at in one turn of the event loop."""

SET_AT_ONCE: Final = 50
"""Values that are put in their places one by one; with more, the list is sorted again."""


class FilteredNames:
    """Those that contain a text, in order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._names: list[str] = []
        self._version = -1

    def follow(self, overview: Overview) -> list[str]:
        """The names; not to be changed."""
        if self._version == overview.names_version:
            return self._names
        changes = None if self._version < 0 else overview.name_changes(self._version)
        if changes is None:
            self._names = [it for it in overview.names if self._text in it]
        else:
            for name, has_come in changes:
                if self._text in name:
                    _put(self._names, name, is_in=has_come)
        self._version = overview.names_version
        return self._names


def _put(names: list[str], name: str, *, is_in: bool) -> None:
    place = bisect_left(names, name)
    is_there = place < len(names) and names[place] == name
    if is_in and not is_there:
        names.insert(place, name)
    elif is_there and not is_in:
        del names[place]


class RankedNames:
    """By a value of each, and by name where it is the same."""

    def __init__(self, value_of: Callable[[str], float], *, descending: bool) -> None:
        self._value_of = value_of
        self._sign = -1 if descending else 1
        self._values: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []
        self._version = -1
        self.used_ms = 0

    def build(self, overview: Overview) -> Iterator[None]:
        """In turns: a step for so many names. Nothing to do once that is done."""
        if self._version >= 0:
            return
        names = iter(tuple(overview.names))
        version = overview.names_version
        while some := tuple(islice(names, BUILT_AT_ONCE)):
            for name in some:
                self._values[name] = self._sign * self._value_of(name)
            yield
        self._order = sorted((value, name) for name, value in self._values.items())
        self._version = version

    def follow(self, overview: Overview) -> None:
        """Names that have come or gone since."""
        changes = overview.name_changes(self._version)
        if changes is None:
            gone = self._values.keys() - set(overview.names)
            come = [it for it in overview.names if it not in self._values]
            changes = iter([*((it, False) for it in gone), *((it, True) for it in come)])
        for name, has_come in changes:
            self._set(name, self._sign * self._value_of(name) if has_come else None)
        self._version = overview.names_version

    def update(self, names: Iterable[str]) -> None:
        """Their values may be others."""
        changed: dict[str, float] = {}
        for name in names:
            before = self._values.get(name)
            if before is not None and (value := self._sign * self._value_of(name)) != before:
                changed[name] = value
        if self._version < 0:  # it is being built
            self._values |= changed
        elif len(changed) < SET_AT_ONCE:
            for name, value in changed.items():
                self._set(name, value)
        else:  # what is in order stays so, and is merged
            self._order = [it for it in self._order if it[1] not in changed]
            self._order += sorted((value, name) for name, value in changed.items())
            self._order.sort()
            self._values |= changed

    def some(self, first: int, count: int, accept: Callable[[str], bool] | None) -> list[str]:
        """``count`` of those that are accepted, from the one at ``first`` on."""
        if accept is None:
            return [name for _, name in self._order[first : first + count]]
        accepted = (name for _, name in self._order if accept(name))
        return list(islice(accepted, first, first + count))

    def _set(self, name: str, value: float | None) -> None:
        before = self._values.get(name)
        if before == value:
            return
        if before is not None:
            del self._order[bisect_left(self._order, (before, name))]
            del self._values[name]
        if value is not None:
            insort(self._order, (value, name))
            self._values[name] = value
