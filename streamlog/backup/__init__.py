"""Backups of streams and of the metadata, and what is made of them again.

A backup is a folder: ``backup.json``, the manifest, names every file with its size and SHA-256, and
alone says what belongs to it. Files of record batches (*pieces*) have the form of segments; a piece
only ever grows at its end, and is not touched again once it is full. So whatever ends a backup in
the middle, the manifest from before still holds, and the next run goes on from there.

Reading order: ``manifest``, ``placement`` and ``group_offsets`` (pure), ``folder``, ``batch_file``,
``metadata_image``; ``source`` with its two kinds, ``cluster_source`` (a running cluster) and
``folder_source`` (nodes' data folders); ``create`` and ``verify``; ``restored_groups``;
``stream_restore`` (into a running cluster), ``cluster_restore`` (folders alone).
"""
