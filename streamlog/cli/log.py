from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.options import Json
from streamlog.cli.output import print_json, print_table
from streamlog.cli.record_lines import json_line

if TYPE_CHECKING:
    from streamlog.log.dump import DumpedBatch, DumpedDamage
    from streamlog.log.verify import Aside, Finding

app = typer.Typer(
    help="Look into the files of a log; no node is needed, and none is disturbed.",
    no_args_is_help=True,
)

ANY_PATH = typer.Argument(
    exists=True, metavar="PATH", help="A segment file, or a partition's, stream's or node's folder."
)
LOG_PATH = typer.Argument(
    exists=True, metavar="PATH", help="A segment file, or a partition's folder."
)


@app.command("verify")
def verify_path(path: Annotated[Path, ANY_PATH], as_json: Json = False) -> None:
    """Check every batch, index and checkpoint. Exit code 1 if anything is wrong."""
    from streamlog.log.verify import Aside, Finding, verify

    findings: list[Finding] = []
    aside: list[Aside] = []
    segments = size_bytes = 0
    for item in verify(path):
        if isinstance(item, Finding):
            findings.append(item)
        elif isinstance(item, Aside):
            aside.append(item)
        else:
            segments += 1
            size_bytes += item.size_bytes
    if as_json:
        print_json(
            {
                "segments": segments,
                "bytes": size_bytes,
                "findings": _plain(findings),
                "aside": _plain(aside),
            }
        )
    else:
        for found in findings:
            print(_line(found))
        for kept in aside:
            print(f"{kept.file}: damaged, kept aside; remove it when nobody wants it any more")
        print(f"{segments} segments, {size_bytes} bytes, {len(findings)} findings")
    if findings:
        raise typer.Exit(1)


@app.command("dump")
def dump_path(
    path: Annotated[Path, LOG_PATH],
    records: Annotated[
        bool, typer.Option("--records", help="The records instead, each as a line of JSON.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the batches as they lie in the files; what is damaged is shown as such."""
    from streamlog.log.dump import dump

    found = dump(path)
    if records:
        _print_records(found)
    elif as_json:
        print_json([_as_json(item) for item in found])
    else:
        print_table(
            ("SEGMENT", "POSITION", "OFFSETS", "RECORDS", "BYTES", "EPOCH", "CODEC", "TIME"),
            (_row(item) for item in found),
        )


def _print_records(found: "Iterable[DumpedBatch | DumpedDamage]") -> None:
    from streamlog.log.dump import DumpedBatch
    from streamlog.record.codec import iter_records

    for item in found:
        if not isinstance(item, DumpedBatch):
            print_json(_as_json(item))
            continue
        partition = int(item.file.parent.name) if item.file.parent.name.isdigit() else 0
        for record in iter_records(item.data):
            print(json_line(partition, record))


def _row(item: "DumpedBatch | DumpedDamage") -> tuple[object, ...]:
    from streamlog.log.dump import DumpedDamage

    if isinstance(item, DumpedDamage):
        damage = item.damage
        size = damage.end_position - damage.position
        return int(item.file.stem), damage.position, damage.problem, None, size, None, None, None
    header = item.header
    time = datetime.fromtimestamp(header.max_timestamp_ms / 1000, UTC)
    return (
        int(item.file.stem),
        item.position,
        f"{header.base_offset}..{header.last_offset}",
        header.record_count,
        header.size_bytes,
        header.leader_epoch,
        header.compression.name.lower(),
        time,
    )


def _as_json(item: "DumpedBatch | DumpedDamage") -> dict[str, object]:
    from streamlog.log.dump import DumpedDamage

    if isinstance(item, DumpedDamage):
        return {"file": str(item.file), "damage": item.damage._asdict()}
    return {"file": str(item.file), "position": item.position, **item.header._asdict()}


def _plain(findings: "Iterable[Finding | Aside]") -> list[dict[str, object]]:
    return [{**found._asdict(), "file": str(found.file)} for found in findings]


def _line(found: "Finding") -> str:
    place = "" if found.position is None else f" position {found.position} offset {found.offset}"
    return f"{found.file}{place}: {found.problem}"
