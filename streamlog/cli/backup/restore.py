"""``streamlog backup restore``: one stream into a running cluster, or a whole cluster out of folders."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.options.connection_options import cluster_at
from streamlog.cli.options.keys import Keys, KeysOf, told_keys
from streamlog.cli.options.options import SERVERS, Backup, Json, Servers
from streamlog.cli.output import print_json, say
from streamlog.errors import InvalidRequest

if TYPE_CHECKING:
    from streamlog.backup.folder import BackupFolder
    from streamlog.backup.stream_restore import Restored
    from streamlog.log.encryption.key_ring import KeyRing
    from streamlog.model import NodeId

app = typer.Typer(help="Restore a stream or a whole cluster from a backup.", no_args_is_help=True)


@app.command()
def stream(
    backup: Backup,
    name: Annotated[str, typer.Argument(metavar="STREAM", help="Its name in the backup.")],
    target: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Under another name; it then listens to that."),
    ] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option("--subject", help="What it is to listen to afterwards; may be repeated."),
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Copies of each partition. Default: as it had.")
    ] = None,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Also what was gone from the cluster when it was backed up."),
    ] = False,
    key: Keys = None,
    config: KeysOf = None,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """One stream into a running cluster, with its offsets, times, keys and headers.

    What is encrypted in the backup takes its --key; the nodes encrypt it by their own.
    The records get the leader epochs of the cluster that they come to; what numbered producers of
    the old one had sent is not known as theirs any more. Interrupted, it goes on when asked again.
    """
    from streamlog.backup.folder import BackupFolder

    keys = told_keys(key, config)
    subjects = tuple(subject or ())
    with BackupFolder.open(backup) as folder:
        restored = asyncio.run(
            _restore(folder, servers, name, target, subjects, replicas, whole, keys)
        )
    if as_json:
        print_json(vars(restored))
        return
    gone_on = "; a run before had begun it" if restored.resumed else ""
    say(
        f"stream {restored.stream} is restored: {restored.offsets} records in"
        f" {restored.partitions} partitions{gone_on}"
    )


@app.command()
def cluster(
    backup: Backup,
    node: Annotated[
        list[str],
        typer.Option(
            "--node",
            metavar="ID=DATA_DIR",
            help="The empty data folder of a node, on this machine; may be repeated.",
        ),
    ],
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="ID,ID...",
            help="All nodes of the new cluster, where some have their folders elsewhere.",
        ),
    ] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", help="Of the new cluster. Default: the old one's."),
    ] = None,
    key: Keys = None,
    config: KeysOf = None,
    as_json: Json = False,
) -> None:
    """The data folders of a whole cluster, while none of its nodes runs.

    On each machine of several, with the same --nodes and --cluster-id everywhere. A cluster that
    keeps its id must be the only one of that id: never start a node of the old one again.

    Encrypted streams come to be under the active key of --config, else under the first --key,
    which the nodes must have; the others open the backup.
    """
    from streamlog.backup.cluster_restore import restore_cluster
    from streamlog.backup.folder import BackupFolder

    paths = dict(_node_path(text) for text in node)
    ids = tuple(_node_id(text) for text in nodes.split(",")) if nodes else ()
    keys = told_keys(key, config, active_of_config=True)
    with BackupFolder.open(backup) as folder:
        done = restore_cluster(folder, paths, nodes=ids, cluster_id=cluster_id, keys=keys)
    if as_json:
        print_json(vars(done))
        return
    say(
        f"cluster {done.cluster_id} is restored: {done.streams} streams, {done.partitions} replicas"
        f" with {done.size_bytes} bytes in {len(paths)} folders; start all nodes, each with"
        f' cluster.id = "{done.cluster_id}" and cluster.voters that names only nodes of these'
    )


def _node_path(text: str) -> "tuple[NodeId, Path]":
    number, equals, path = text.partition("=")
    if not equals or not path:
        raise InvalidRequest(f"--node {text}: give it as ID=DATA_DIR")
    return _node_id(number), Path(path)


def _node_id(text: str) -> "NodeId":
    from streamlog.model import NodeId

    if not text.strip().isdigit() or int(text) < 1:
        raise InvalidRequest(f"{text.strip()!r} is no node's id: those are numbers from 1 on")
    return NodeId(int(text))


async def _restore(
    folder: "BackupFolder",
    servers: str,
    name: str,
    target: str | None,
    subjects: tuple[str, ...],
    replicas: int | None,
    whole: bool,
    keys: "KeyRing",
) -> "Restored":
    from streamlog.backup.stream_restore import restore_stream

    async with cluster_at(servers) as found:
        return await restore_stream(
            folder, found, name, target=target, subjects=subjects, replicas=replicas, whole=whole,
            keys=keys,
        )  # fmt: skip
