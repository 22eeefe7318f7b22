"""How far self-healing is, as the controller tells it; see ``metadata.controller.self_healing``. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from dataclasses import fields as field_list
from typing import Any, Final, Self

from streamlog.condition import NO_ACTION, NOTE, Condition
from streamlog.model import NodeId

SELF_HEALING: Final = Condition(
    "SL-0136",
    "replicas of lost nodes move to other nodes",
    "wait; `streamlog cluster check` tells how far it is",
    meaning="A node has been fenced for cluster.self_healing_ms. The controller replaces its replicas, a few "
    "at a time.",
    runbook="runbooks/replace-a-node.md",
)
SELF_HEALING_STUCK: Final = Condition(
    "SL-0137",
    "self-healing leaves partitions alone",
    "bring the lost nodes back, or give the others room; `streamlog cluster check` says which it is",
    meaning="A lost node's replicas cannot be replaced: partitions have no leader, no node has room for them, or "
    "too many nodes are lost.",
    runbook="runbooks/replace-a-node.md",
)
SELF_HEALED: Final = Condition(
    "SL-0138",
    "no lost node keeps a replica any more",
    NO_ACTION,
    meaning="Self-healing has come to its end: all replicas have moved, or the node came back.",
    severity=NOTE,
)


@dataclass(frozen=True, slots=True)
class HealingStatus:
    """How far it is. The numbers are of partitions with a replica on a lost node."""

    lost: tuple[NodeId, ...] = ()
    """Those that keep something."""
    too_many: bool = False
    """Nothing moves: more nodes are lost than are replaced."""
    moving: int = 0
    waiting: int = 0
    """Until others have moved, or their leaders have told their size."""
    leaderless: int = 0
    """Left alone: their last in-sync replicas are not alive."""
    without_room: int = 0
    """No node can take a replica: too few machines, or too little room on their disks."""

    @property
    def is_stuck(self) -> bool:
        return self.too_many or bool(self.leaderless or self.without_room)

    def json(self) -> dict[str, Any]:
        """What ``of_json`` reads."""
        return {**asdict(self), "lost": list(self.lost)}

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Self:
        """What a newer node tells beside is passed over; what an older one does not tell is nothing."""
        names = [it.name for it in field_list(cls)]
        known = {name: fields[name] for name in names if name in fields}
        return cls(**{**known, "lost": tuple(map(NodeId, fields.get("lost", ())))})


NOTHING_LOST: Final = HealingStatus()
