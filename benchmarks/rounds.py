"""All rounds of all cases; whatever gives no figure is made again, and told."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.case import Case, Figures, Measurement, Servers, Variant
from benchmarks.connection import VOID

QUICK_SCALE: Final = 0.1
ATTEMPTS: Final = 3


def measure(
    console: Console,
    servers: Servers,
    cases: Sequence[Case[Servers]],
    rounds: int,
    *,
    quick: bool = False,
) -> Iterator[Figures]:
    """All rounds of each case; within a round the variants take turns. Raises BenchmarkError."""
    scale = QUICK_SCALE if quick else 1.0
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        for case in cases:
            figures = Figures(case)
            count = rounds if case.rounds is None or quick else case.rounds
            task = progress.add_task(case.title, total=count * len(case.variants))
            case.prepare(servers, scale)
            for _ in range(count):
                for variant in case.variants:
                    progress.update(task, description=f"{case.title}: {variant.label}")
                    figures.add(variant.label, run(variant, figures, servers, scale))
                    progress.advance(task)
            case.clear(servers)
            progress.remove_task(task)
            yield figures


def run(variant: Variant[Servers], figures: Figures, servers: Servers, scale: float) -> Measurement:
    """A void run is noted and made again; so many in a row are not chance."""
    for _ in range(ATTEMPTS - 1):
        try:
            return variant.run(servers, scale)
        except VOID as error:
            figures.voids.append(f"{figures.case.title}, {variant.label}: {error}")
    return variant.run(servers, scale)
