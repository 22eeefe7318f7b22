import gc
import resource
from collections.abc import Iterator

import pytest

from streamlog.app.run import OPEN_FILES_MAX, allow_open_files, collect_seldom


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        ((1024, 20_000), (20_000, 20_000)),
        ((20_000, 20_000), None),
        ((1024, resource.RLIM_INFINITY), (OPEN_FILES_MAX, resource.RLIM_INFINITY)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
@pytest.mark.parametrize("is_refused", [False, True])
def test_as_many_files_as_may_be(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    asked: tuple[int, int] | None,
    is_refused: bool,
) -> None:
    calls = []

    def set_limit(_: int, wanted: tuple[int, int]) -> None:
        calls.append(wanted)
        if is_refused:
            raise ValueError("not so many")

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    allow_open_files()
    assert calls == ([asked] if asked else [])


def test_a_read_of_many_partitions_makes_nobody_look_for_cycles(
    thresholds: tuple[int, int, int],
) -> None:
    collect_seldom()
    assert gc.get_threshold()[1:] == thresholds[1:]
    gc.collect()
    before = [generation["collections"] for generation in gc.get_stats()]
    in_flight = [[number] for number in range(50_000)]
    assert [generation["collections"] for generation in gc.get_stats()] == before
    assert in_flight
