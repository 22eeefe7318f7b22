"""The cluster's truth: streams, partitions, nodes.

A request goes one way only: the ``controller`` looks at the image and *returns* records; the quorum
appends them as one batch to the metadata log and commits it; the next image is built; then
listeners act on it; then the caller is answered.

- ``service`` the metadata as the rest of the node uses them: the image, the listeners that act on each
  new one, and commands, which it carries to the controller (``forwarding``); ``commands`` what may be
  asked. ``active_controller`` carries commands out, and does what the controller does by itself: it
  fences nodes, goes on with moves, rebalances leaders.
- ``controller`` decisions. Pure. ``image`` the records, the image they make, snapshots. Pure.
- ``quorum`` this node's replica of the metadata log, in ``<data_dir>/metadata/``.
- ``nodes`` registration, sessions, leases, deletions, clocks, the node's folder.
- ``stream`` settings, subjects, transforms; ``read_barrier`` waits for what is decided by now (etcd:
  linearizable read).

Invariants: the image is a function of the records below its offset; epochs only grow; a stream is
never forgotten because its metadata is short: a log with a damaged middle is refused.

Nothing here opens or deletes a partition's folder: ``partition`` listens.
"""
