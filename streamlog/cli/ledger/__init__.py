"""``streamlog ledger``: order a stream into blocks, and use or check what was ordered.

``serve`` is an ordering node, a process of its own beside the streamlog nodes; ``broadcast``,
``deliver``, ``configure`` and ``info`` ask any ordering node over NATS; ``verify`` needs only the
files. ``options`` has what several share.
"""

from streamlog.cli.ledger.commands import app

__all__ = ["app"]
