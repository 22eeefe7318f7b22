"""A node that has a cluster to itself: it starts, as the controller sees it."""

from uuid import UUID

from streamlog.metadata.commands import Command, Heartbeat, RegisterNode
from streamlog.metadata.controller import Decision, decide
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId


def started(
    image: MetadataImage,
    node_id: NodeId,
    incarnation: UUID,
    *,
    host: str = "h",
    port: int = 1,
    rack: str | None = None,
) -> Decision:
    """Registers, and is let in with its first heartbeat."""
    known = image.nodes.get(node_id)
    wanted = RegisterNode(
        node_id=node_id, incarnation=incarnation, directory_id=UUID(int=node_id),
        host=host, port=port, rack=rack,
        stamps=() if known is None or known.stamp is None else (known.stamp,),
    )  # fmt: skip
    registered = _decided(image, wanted)
    between = image.apply_all(registered.records, offset=image.offset, epoch=image.epoch)
    node_epoch = int(registered.result["node_epoch"])
    beat = Heartbeat(node_id=node_id, node_epoch=node_epoch, offset=between.offset)
    return Decision((*registered.records, *_decided(between, beat).records))


def _decided(image: MetadataImage, command: Command) -> Decision:
    return decide(image, command, now_ms=0, new_id=UUID(int=0), live=frozenset())
