"""What the members of a consumer group have written down, and whether it is as promised."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

NS = 1_000_000_000


class Violation(AssertionError):
    """A group's history is not as promised."""


class Event(NamedTuple):
    """A line of a member's journal."""

    at_ns: int
    member: str
    kind: str
    numbers: tuple[int, ...]

    @property
    def partition(self) -> int:
        return self.numbers[0]


class GroupHistory:
    """All journals of a group in the order of the machine's clock."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = sorted(events)
        self.processed = [it for it in self.events if it.kind == "P"]
        self.commits = [it for it in self.events if it.kind == "C"]

    @classmethod
    def read(cls, journals: Iterable[Path], killed: Mapping[str, int]) -> "GroupHistory":
        """``killed``: when members were; of one, the last line may be torn."""
        events = [Event(at_ns, name, "K", ()) for name, at_ns in killed.items()]
        for journal in journals:
            for line in journal.read_text().splitlines(keepends=True):
                words = line.split()
                if line.endswith("\n") and words[0] != "X":
                    numbers = tuple(map(int, words[2:]))
                    events.append(Event(int(words[1]), journal.stem, words[0], numbers))
        return cls(events)

    def is_whole(self, partitions: int) -> bool:
        """Whether every partition was assigned to somebody at some time."""
        assigned = {it for event in self.events if event.kind == "A" for it in event.numbers}
        return len(assigned) == partitions

    def committed(self) -> dict[int, int]:
        """The last that was committed in each partition."""
        found: dict[int, int] = {}
        for it in self.commits:
            partition, offset = it.numbers
            found[partition] = max(found.get(partition, 0), offset)
        return found

    def check(self, ends: Mapping[int, int]) -> None:
        """``ends``: of each partition. Raises Violation."""
        self.check_all_processed(ends)
        self.check_none_after_its_commit()

    def check_all_processed(self, ends: Mapping[int, int]) -> None:
        """Every record, by some member, at least once."""
        runs: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for it in self.processed:
            partition, first, end = it.numbers
            runs[partition].append((first, end))
        for partition, wanted in ends.items():
            reached = 0
            for first, end in sorted(runs[partition]):
                if first > reached:
                    raise Violation(f"{partition}: nobody processed {reached} to {first}")
                reached = max(reached, end)
            if reached != wanted:
                raise Violation(f"{partition}: processed up to {reached}, not to {wanted}")

    def check_none_after_its_commit(self) -> None:
        """No member asked for a record, and got it, after somebody was told it is committed."""
        committed: dict[int, Event] = {}
        for it in self.events:
            if it.kind == "C":
                known = committed.get(it.partition)
                if known is None or known.numbers[1] < it.numbers[1]:
                    committed[it.partition] = it
            elif it.kind == "P" and it.partition in committed:
                last = committed[it.partition]
                if it.numbers[1] < last.numbers[1]:
                    raise Violation(f"{it} came again after {last}")

    def repeated(self) -> int:
        """Records that were processed more than once: what a kill cost."""
        ends: dict[int, int] = {}
        for it in self.processed:
            partition, _, end = it.numbers
            ends[partition] = max(ends.get(partition, 0), end)
        total = sum(it.numbers[2] - it.numbers[1] for it in self.processed)
        return total - sum(ends.values())

    def gaps_s(self) -> list[float]:
        """How long, each time, a partition that had lost its reader had none: since that one was
        killed, or gave it up, until another one had it. What is lost at the end is not counted.
        """
        owners: dict[int, set[str]] = defaultdict(set)
        since_ns: dict[int, int] = {}
        gaps: list[float] = []
        for it in self.events:
            if it.kind == "A":
                for partition in it.numbers:
                    owners[partition].add(it.member)
                    if partition in since_ns:
                        gaps.append((it.at_ns - since_ns.pop(partition)) / NS)
            elif it.kind in ("R", "K"):
                for partition in it.numbers if it.kind == "R" else tuple(owners):
                    if it.member in owners[partition]:
                        owners[partition].remove(it.member)
                        if not owners[partition]:
                            since_ns[partition] = it.at_ns
        return gaps

    def describe(self) -> str:
        gaps = self.gaps_s()
        members = len({it.member for it in self.events})
        text = (
            f"{members} members, {len(self.commits)} commits, {self.repeated()} records repeated,"
            f" {len(gaps)} times a partition changed hands"
        )
        if gaps:
            text += f": after a median of {statistics.median(gaps):.2f} s, at worst {max(gaps):.2f}"
        return text
