"""``streamlog backup``: copies of streams and metadata, taken of a cluster that runs or of folders.

A backup is a folder. Taking it again adds what has come since.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamlog.cli.backup import restore
from streamlog.cli.options import names
from streamlog.cli.options.connection_options import cluster_at
from streamlog.cli.options.keys import Keys, KeysOf, told_keys
from streamlog.cli.options.options import SERVERS, Backup, Json, Servers
from streamlog.cli.output import print_json, print_pairs, print_table, say
from streamlog.errors import CorruptData, InvalidRequest, StreamlogError

if TYPE_CHECKING:
    from streamlog.backup.create import BackupOptions, BackupReport
    from streamlog.backup.folder import BackupFolder
    from streamlog.log.encryption.key_ring import KeyRing

app = typer.Typer(
    help="Take backups, look at them, and restore what they have.", no_args_is_help=True
)
app.add_typer(restore.app, name="restore")


@app.command()
def create(
    backup: Backup,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            help="Only this one, and no metadata; may be repeated.",
            autocompletion=names.streams,
        ),
    ] = None,
    path: Annotated[
        list[Path] | None,
        typer.Option(
            "--path",
            exists=True,
            file_okay=False,
            metavar="DATA_DIR",
            help="A node's data folder instead of a running cluster; may be repeated.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="The object store of tiered storage (tier.url) instead of a running cluster: all that is left where"
            " the nodes are gone.",
        ),
    ] = None,
    store_endpoint: Annotated[
        str | None,
        typer.Option("--store-endpoint", metavar="URL", help="As tier.endpoint."),
    ] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", help="With --store: the cluster whose streams are meant."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Copy all again, also what the backup has already.")
    ] = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Forget what the cluster does not keep any more, too."),
    ] = False,
    key: Keys = None,
    config: KeysOf = None,
    plaintext: Annotated[
        bool,
        typer.Option("--plaintext", help="Have the records of encrypted streams in the clear."),
    ] = False,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Add what has been committed since the last time; the first time that is all there is.

    With --store the streams of a cluster whose nodes are lost come out of its object store, without the records that
    were not copied there yet. `backup restore` makes a cluster of that, or brings its streams into one.

    What comes of encrypted streams is encrypted in the backup, too, by the first --key; others that
    are named open what a --path has. With --config the node's keys are known, and its active one
    is used if no --key is given.

    Exit code 1 if a partition could not be read; the others are in the backup all the same.
    """
    from streamlog.backup.create import BackupOptions
    from streamlog.backup.folder import BackupFolder

    keys = told_keys(key, config)
    if (store is None) != (cluster_id is None) or (store and path):
        raise InvalidRequest("--store needs --cluster-id, and no --path")
    with BackupFolder.make(backup) as folder:
        wish = BackupOptions(frozenset(stream or ()), full, prune, plaintext)
        if store is not None and cluster_id is not None:
            taken = asyncio.run(_take_stored(folder, store, store_endpoint, cluster_id, wish, keys))
        else:
            taken = asyncio.run(_take(folder, servers, path or [], wish, keys))
    if as_json:
        print_json(vars(taken))
    else:
        say(
            f"{taken.streams} streams with {taken.partitions} partitions of cluster"
            f" {taken.cluster_id} are in {backup}: {taken.new_offsets} records and"
            f" {taken.new_bytes} bytes are new, {taken.size_bytes} bytes in all"
        )
    if taken.problems:
        raise StreamlogError("not backed up: " + "; ".join(taken.problems))


@app.command()
def info(backup: Backup, as_json: Json = False) -> None:
    """What is in a backup, by its manifest."""
    from streamlog.backup.folder import BackupFolder

    with BackupFolder.open(backup) as folder:
        manifest = folder.manifest
        streams = _streams(folder)
    finished = manifest.finished_ms
    time = None if finished is None else datetime.fromtimestamp(finished / 1000, UTC)
    if as_json:
        print_json(
            {
                "backup_id": str(manifest.backup_id),
                "cluster_id": manifest.cluster_id,
                "finished": time and time.isoformat(),
                "written_by": manifest.written_by,
                "streams": streams,
            }
        )
        return
    print_pairs(
        (
            ("cluster", manifest.cluster_id),
            ("finished", time or "never: it cannot be made a cluster of"),
            ("written by", manifest.written_by),
        )
    )
    columns = ("name", "partitions", "records", "bytes", "keys", "missing")
    rows = [tuple(it[column] for column in columns) for it in streams]
    print_table(("STREAM", "PARTITIONS", "RECORDS", "BYTES", "KEYS", "MISSING PARTITIONS"), rows)


@app.command()
def verify(backup: Backup, key: Keys = None, config: KeysOf = None, as_json: Json = False) -> None:
    """Read every file, and check it by its SHA-256 and each batch by its checksum.

    With their keys encrypted files are decrypted as well, which shows that the keys fit.
    Exit code 1 if anything is wrong.
    """
    from streamlog.backup.folder import BackupFolder
    from streamlog.backup.verify import verify_backup

    keys = told_keys(key, config)
    with BackupFolder.open(backup) as folder:
        checked = verify_backup(folder, keys)
    if as_json:
        print_json(vars(checked))
    else:
        for problem in checked.problems:
            say(problem)
        if checked.unopened:
            say(f"{checked.unopened} encrypted files were not decrypted: their keys were not given")
        for text in checked.too_far:
            say(f"{text}; a restore lowers it to that")
        say(f"{checked.files} files, {checked.size_bytes} bytes, {len(checked.problems)} wrong")
    if checked.problems:
        raise CorruptData(f"{backup} is damaged; take what is wrong again (backup create --full)")


async def _take_stored(
    folder: "BackupFolder",
    url: str,
    endpoint: str | None,
    cluster_id: str,
    wish: "BackupOptions",
    keys: "KeyRing",
) -> "BackupReport":
    from streamlog.backup.create import take
    from streamlog.backup.store_source import StoredCluster
    from streamlog.tier.object_store import ObjectStore

    store = ObjectStore(url, endpoint=endpoint)
    try:
        return await take(folder, StoredCluster(store, cluster_id, keys), wish, keys)
    finally:
        store.close()


async def _take(
    folder: "BackupFolder", servers: str, paths: list[Path], wish: "BackupOptions", keys: "KeyRing"
) -> "BackupReport":
    from streamlog.backup.cluster_source import ServedCluster
    from streamlog.backup.create import take
    from streamlog.backup.folder_source import KeptFolders

    if paths:
        return await take(folder, KeptFolders(paths, keys), wish, keys)
    async with cluster_at(servers) as cluster:
        return await take(folder, ServedCluster(cluster), wish, keys)


def _streams(folder: "BackupFolder") -> list[dict[str, Any]]:
    from streamlog.backup.batch_file import keys_of

    return [
        {
            "name": stream.name,
            "stream_id": str(stream.stream_id),
            "partitions": len(stream.partitions),
            "records": sum(it.next_offset - it.start_offset for it in stream.partitions),
            "bytes": sum(it.size_bytes for it in stream.partitions),
            "keys": sorted(keys_of(folder, stream)),
            "missing": stream.missing,
        }
        for stream in folder.manifest.streams
    ]
