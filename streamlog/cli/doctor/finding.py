from typing import Literal, NamedTuple

State = Literal["ok", "note", "warning", "failed", "skipped"]


class DoctorFinding(NamedTuple):
    """One line of it is ``said``; ``remedy`` says what to do, where something is to be done."""

    area: str
    state: State
    said: str
    remedy: str = ""
    measured: dict[str, float] | None = None
    """In base units, by name."""
