"""The cluster's truth: streams, partitions, nodes.

A request goes one way only: the ``controller`` looks at the image and *returns* records; the
``store`` appends them as one batch to the metadata log and syncs it; ``image.apply`` builds the
next image; then listeners act on it; then the caller is answered. What was answered survives any
crash.

- ``stream`` what a stream is set to; ``subjects`` the rules of NATS subjects; ``settings_table``
  the one table of what each setting is called in JetStream and in Kafka.
- ``records``, ``image``, ``controller``: pure.
- ``data_dir`` the node's folder: its lock, ``node.json``.
- ``snapshot``, ``store``: ``<data_dir>/metadata/``: ``quorum-state`` (the epoch, synced before it
  is used), ``log/`` (segments like any other), ``<offset>-<epoch>.checkpoint`` (images as JSON).
- ``service`` the one shell: one change at a time.

Invariants: the image is a function of the records below its offset; the epoch grows at each start;
a stream is never forgotten because its metadata is short: a log with a damaged middle is refused.

One node is the quorum of one: where a batch is now synced and then applied, it will be synced by a
majority and then applied. Nothing here opens or deletes a partition's folder: ``partition``
listens.
"""
