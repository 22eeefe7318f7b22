"""Commands in an Envelope from somebody who is no node: which may come, and with what right."""

from typing import Final

from streamlog.acl.rules import Operation
from streamlog.authz.permissions import Permissions
from streamlog.metadata import commands
from streamlog.metadata.commands import Command

NEEDED: Final[dict[type[Command], Operation]] = {
    commands.MovePartition: Operation.ALTER,
    commands.CancelMove: Operation.ALTER,
    commands.ElectLeader: Operation.ALTER,
    commands.RebalanceLeaders: Operation.ALTER,
    commands.DrainNode: Operation.ALTER,
    commands.RemoveNode: Operation.ALTER,
    commands.AddVoter: Operation.ALTER,
    commands.RemoveVoter: Operation.ALTER,
    commands.TransferController: Operation.ALTER,
    commands.RaiseLevel: Operation.ALTER,
    commands.ExportMetadata: Operation.ALTER,  # users' credentials are in it
    commands.AwaitApplied: Operation.DESCRIBE,
    commands.DescribeCluster: Operation.DESCRIBE,
}
"""With the cluster. What is not here is for nodes alone: clients have requests of their own for it,
or it is what a node says of itself."""


def check_command(command: Command, access: Permissions, *, forwarded: bool) -> None:
    """``forwarded``: as only a node does it. Raises ClusterForbidden."""
    needed = NEEDED.get(type(command))
    if forwarded or needed is None:
        access.refuse_to_clients(f"Envelope of {type(command).__name__}")
    access.check_cluster(needed)
