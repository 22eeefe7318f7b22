from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.messages.record_lines import json_record
from streamlog.cli.options.keys import Keys, KeysOf, told_keys
from streamlog.cli.options.options import Json
from streamlog.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from streamlog.log.encryption.key_ring import KeyRing
    from streamlog.log.tools.dump import DumpedBatch, DumpedDamage
    from streamlog.log.tools.verify import Aside, FolderFinding, Unopened

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
def verify_path(
    path: Annotated[Path, ANY_PATH],
    key: Keys = None,
    config: KeysOf = None,
    as_json: Json = False,
) -> None:
    """Check every batch, index and checkpoint. Exit code 1 if anything is wrong.

    Encrypted batches are checked by their checksums; with their keys they are decrypted as well,
    which finds what was changed on purpose.
    """
    from streamlog.log.tools.verify import Aside, FolderFinding, Unopened, verify

    findings: list[FolderFinding] = []
    unopened: list[Unopened] = []
    aside: list[Aside] = []
    segments = size_bytes = 0
    for item in verify(path, told_keys(key, config)):
        if isinstance(item, FolderFinding):
            findings.append(item)
        elif isinstance(item, Unopened):
            unopened.append(item)
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
                "unopened": _plain(unopened),
                "aside": _plain(aside),
            }
        )
    else:
        for found in findings:
            say(_line(found))
        for kept in aside:
            say(f"{kept.file}: damaged, kept aside; remove it when it is not needed")
        if unopened:
            say(_by_checksums_only(unopened))
        say(f"{segments} segments, {size_bytes} bytes, {len(findings)} findings")
    if findings:
        raise typer.Exit(1)


@app.command("dump")
def dump_path(
    path: Annotated[Path, LOG_PATH],
    records: Annotated[
        bool, typer.Option("--records", help="The records instead, each as a line of JSON.")
    ] = False,
    key: Keys = None,
    config: KeysOf = None,
    as_json: Json = False,
) -> None:
    """Print the batches as they lie in the files; what is damaged is shown as such.

    The records of encrypted batches take their keys. Records of transactions that are open, or were
    aborted, are left out.
    """
    from streamlog.log.tools.dump import dump

    keys = told_keys(key, config)
    found = dump(path, keys if records or keys.names else None)
    if records:
        _print_records(path, keys, found)
    elif as_json:
        print_json([_as_json(item) for item in found])
    else:
        _print_batches(found)


def _print_batches(found: "Iterable[DumpedBatch | DumpedDamage]") -> None:
    columns = ("SEGMENT", "POSITION", "OFFSETS", "RECORDS", "BYTES", "EPOCH", "CODEC", "TIME")
    rows = [_row(item) for item in found]
    if any(row[-1] for row in rows):
        print_table((*columns, "ENCRYPTED BY"), rows)
    else:
        print_table(columns, (row[:-1] for row in rows))


def _print_records(
    path: Path, keys: "KeyRing", found: "Iterable[DumpedBatch | DumpedDamage]"
) -> None:
    from streamlog.log.tools.dump import DumpedBatch, Undecided
    from streamlog.record.codec import iter_records

    undecided: Undecided | None = None
    for item in found:
        if not isinstance(item, DumpedBatch):
            print_json(_as_json(item))
            continue
        if item.header.is_transactional:
            if undecided is None:
                undecided = Undecided(path.parent if path.is_file() else path, keys)
            if undecided.has(item.header):
                continue
        partition = int(item.file.parent.name) if item.file.parent.name.isdigit() else 0
        for record in iter_records(item.data):
            print_json(json_record(partition, record))


def _row(item: "DumpedBatch | DumpedDamage") -> tuple[object, ...]:
    from streamlog.log.tools.dump import DumpedDamage

    if isinstance(item, DumpedDamage):
        damage = item.damage
        size = damage.end_position - damage.position
        return int(item.file.stem), damage.position, damage.problem, None, size, *[None] * 4
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
        item.encrypted_by,
    )


def _as_json(item: "DumpedBatch | DumpedDamage") -> dict[str, object]:
    from streamlog.log.tools.dump import DumpedDamage

    if isinstance(item, DumpedDamage):
        return {"file": str(item.file), "damage": item.damage._asdict()}
    place = {"file": str(item.file), "position": item.position}
    return {**place, **item.header._asdict(), "encrypted_by": item.encrypted_by}


def _plain(findings: "Iterable[FolderFinding | Unopened | Aside]") -> list[dict[str, object]]:
    return [{**found._asdict(), "file": str(found.file)} for found in findings]


def _by_checksums_only(unopened: "list[Unopened]") -> str:
    names = ", ".join(sorted({it.key_name for it in unopened}))
    return (
        f"{len(unopened)} segments are encrypted and were checked by their checksums only: to check"
        f" what they hold, give --key or --config for {names}"
    )


def _line(found: "FolderFinding") -> str:
    place = "" if found.position is None else f" position {found.position} offset {found.offset}"
    return f"{found.file}{place}: {found.problem}"
