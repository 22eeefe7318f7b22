"""``streamlog cluster recover-quorum``: a way out when a majority of the voters is lost for good."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from streamlog.cli.options.options import OneNode, Yes
from streamlog.cli.output import say
from streamlog.clock import wall_ms
from streamlog.errors import InvalidRequest

if TYPE_CHECKING:
    from streamlog.config import Settings
    from streamlog.metadata.image.metadata_image import MetadataImage
    from streamlog.metadata.quorum.store import MetadataStore
    from streamlog.model import NodeId

WARNING = (
    "What the other voters decided without this one is lost, and none of them may ever start"
    " again with its metadata. Is node {node} to decide alone from now on?"
)


def recover_quorum(
    config: Annotated[
        Path, typer.Option("--config", "-c", help="The file of the node, which must be stopped.")
    ],
    node: OneNode = None,
    yes: Yes = False,
) -> None:
    """Lost majority, lost for good: make this voter the only one. Read docs/operations.md first."""
    from streamlog.config import load_node

    settings = load_node(config, node).settings
    if not yes:
        typer.confirm(WARNING.format(node=settings.node.id), abort=True, err=True)
    epoch = make_only_voter(settings)
    say(f"node {settings.node.id} is the only voter, from epoch {epoch} on; start it")


def make_only_voter(settings: "Settings") -> int:
    """Write it into the metadata log of a node that is stopped; the epoch of that record.

    Raises InvalidRequest if the node does not vote, ConfigError if it runs, and what a damaged
    log or vote raises: then another survivor must do it.
    """
    from streamlog.log.storage.disk import OsDisk
    from streamlog.log.storage.file_pool import FilePool
    from streamlog.metadata.nodes.data_dir import DataDir
    from streamlog.metadata.quorum.store import MetadataStore
    from streamlog.model import NodeId

    node_id = NodeId(settings.node.id)
    if not (settings.node.data_dir / "node.json").exists():
        raise InvalidRequest(f"{settings.node.data_dir} is no node's folder")
    with DataDir.open(settings.node.data_dir, node_id, cluster_id=settings.cluster.id) as folder:
        disk = OsDisk()
        files = FilePool(disk, 16)
        store = MetadataStore(
            folder.metadata,
            folder.cluster_id,
            disk=disk,
            files=files,
            power_lost=folder.power_was_lost(),
        )
        try:
            return _append(store, node_id, _newest(store))
        finally:
            store.close()


def _newest(store: "MetadataStore") -> "MetadataImage":
    """Of all that is in the log, committed or not: the newest voters hold."""
    image = store.open()
    for batch in store.batches_from(image.offset):
        image = image.apply_all(batch.records, offset=batch.base_offset, epoch=batch.epoch)
    return image


def _append(store: "MetadataStore", node_id: "NodeId", image: "MetadataImage") -> int:
    """What the others decided is lost, so this is another log from here on: what they may have
    given away, as producer ids, is not given again.
    """
    from streamlog.metadata.controller import begin_log
    from streamlog.metadata.image.records import VotersChanged
    from streamlog.metadata.quorum.quorum_state_file import StoredVote
    from streamlog.raft.voters import VoterSet

    vote, voters = store.vote, image.voters
    me = voters.by_id.get(node_id)
    if vote is None:
        raise InvalidRequest(f"node {node_id} has no vote: {store.vote_damage or 'it never ran'}")
    if me is None or me.directory_id not in (None, vote.directory_id):
        raise InvalidRequest(f"node {node_id} is not a voter; those are {sorted(voters.ids)}")
    epoch = max(vote.epoch, store.last_epoch) + 1
    store.save_vote(StoredVote(vote.directory_id, epoch))
    alone = VoterSet.of([replace(me, directory_id=vote.directory_id)])
    now_ms = wall_ms()
    begun = begin_log(image, new_id=uuid4(), now_ms=now_ms)
    store.append([VotersChanged.of(alone), begun], epoch, now_ms)
    store.sync()
    return epoch
