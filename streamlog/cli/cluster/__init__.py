"""``streamlog cluster``: look at the nodes and the quorum, and have the controller change them.

Every command asks any node of ``--bootstrap-server``. What must be decided goes as a command to the
controller, which that node finds; its refusal is printed as it came. Who leads what is Kafka's
Metadata answer, as any Kafka client sees it.

``group`` lists the commands; ``controller`` and ``waiting`` are how they ask, and wait for what
they asked for; ``findings`` says what is wrong with a cluster.
"""

from streamlog.cli.cluster.group import app

__all__ = ["app"]
