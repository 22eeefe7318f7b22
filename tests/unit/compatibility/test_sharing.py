"""What members of a share group answered is right, or what is wrong with it is told."""

import pytest

from compatibility.checks.sharing import RELEASED, Answer, check_answers
from compatibility.outcome import Failed
from compatibility.scene import value

COUNT = 2 * RELEASED


def answer(offset: int, deliveries: int = 1, *, is_accepted: bool = True) -> Answer:
    return Answer(offset, value(offset), deliveries, is_accepted)


RELEASES = [answer(it, is_accepted=False) for it in range(RELEASED)]
ACCEPTED = [answer(it, 2 if it < RELEASED else 1) for it in range(COUNT)]


def test_each_record_is_accepted_once_and_after_its_release() -> None:
    check_answers([*ACCEPTED[::-1], *RELEASES], COUNT)


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([*RELEASES, *ACCEPTED, answer(3, 2)], "offsets accepted"),
        ([*RELEASES, *ACCEPTED[:-1]], "offsets accepted"),
        ([*RELEASES[:-1], *ACCEPTED], "records released"),
        ([*RELEASES, answer(0, 1), *ACCEPTED[1:]], "record 0 was accepted at delivery 1"),
        ([*RELEASES, *ACCEPTED[:-1], Answer(COUNT - 1, "other", 1, True)], f"record {COUNT - 1}"),
    ],
)
def test_what_is_wrong_is_told(answers: list[Answer], says: str) -> None:
    with pytest.raises(Failed, match=says):
        check_answers(answers, COUNT)
