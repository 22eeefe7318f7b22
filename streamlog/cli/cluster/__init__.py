"""``streamlog cluster``: look at the nodes and the quorum, and have the controller change them.

Every command asks any node of ``--bootstrap-server``. What must be decided goes as a command to the
controller, which that node finds; its refusal is printed as it came. Who leads what is Kafka's
Metadata answer, as any Kafka client sees it.

``commands`` has most of them, and lists all; ``controller`` and ``waiting`` are how they ask, and
wait for what they asked for.
"""

from streamlog.cli.cluster.commands import app

__all__ = ["app"]
