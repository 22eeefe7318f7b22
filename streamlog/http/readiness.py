"""Can the node do its work, and if not, why."""

from collections.abc import Callable, Mapping

Condition = Callable[[], str | None]
"""None where all is well, else the reason why not, in words."""


class Readiness:
    """Named conditions, asked whenever somebody wants to know; nothing is remembered."""

    def __init__(self, conditions: Mapping[str, Condition]) -> None:
        self._conditions = conditions

    def reasons(self) -> dict[str, str]:
        """Why the node is not ready; empty when it is."""
        answers = {name: condition() for name, condition in self._conditions.items()}
        return {name: reason for name, reason in answers.items() if reason is not None}
