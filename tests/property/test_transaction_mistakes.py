"""Mistakes that are planted into the log's transactions, each of which the stories of ``test_transactions`` find."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from streamlog.log import control_batches
from streamlog.log.erasure.erasures import Erasures
from streamlog.log.transactions.transactions import Transactions
from tests import erased_log
from tests.property.test_transactions import TransactionMachine

STORIES = settings(
    max_examples=400,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def lose_fetched_markers(patch: pytest.MonkeyPatch) -> None:
    """A follower appends a marker and does not take note of it: it is lost at the failover."""

    def note_records_alone(_: Erasures, transactions: Transactions, records: Any) -> None:
        control_batches.note_all(Erasures(), transactions.snapshot(), records)

    patch.setattr(erased_log, "note_all", note_records_alone)


def count_uncommitted_markers(patch: pytest.MonkeyPatch) -> None:
    """A last stable offset that is too high: a marker counts before it is committed."""

    def first(self: Transactions) -> None:
        firsts = (it.first_offset for it in self.open.values())
        self.first_unstable_offset = min(firsts, default=None)

    patch.setattr(Transactions, "_look_for_first", first)
    _noting_first(patch)


def _noting_first(patch: pytest.MonkeyPatch) -> None:
    marked = Transactions.note_marker

    def note_marker(self: Transactions, *args: Any, **kinds: Any) -> Any:
        found = marked(self, *args, **kinds)
        self._look_for_first()
        return found

    patch.setattr(Transactions, "note_marker", note_marker)


def keep_what_a_cut_opens(patch: pytest.MonkeyPatch) -> None:
    """A marker that is cut off stays noted."""
    patch.setattr(Transactions, "cut", lambda *_: True)


MISTAKES = [
    lose_fetched_markers,
    count_uncommitted_markers,
    keep_what_a_cut_opens,
]


@pytest.mark.parametrize("plant", MISTAKES, ids=lambda it: it.__name__)
def test_a_mistake_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(TransactionMachine, settings=STORIES)
