"""Records under a key on the disk: AES-256-GCM over each batch, with a data key per segment.

- ``cipher``     a batch, as it is appended, to one that cannot be read without the key, and back
- ``key_file``   a segment's data key, itself encrypted, as it stands beside the segment
- ``key_ring``   the keys by which data keys are encrypted: one for what is new, others for reading
- ``key_source`` where such a key comes from: a file, an environment variable, a command
- ``opener``     opens batches for who reads a segment as it lies there
- ``envelope``   a small file of its own, encrypted too
- ``segment_key`` a segment's data key, made or read when it is needed
- ``rewrap``     data keys are encrypted again, by another key; segments stay as they are
- ``inventory``  which keys a folder needs

What is not a record stays in the clear: offsets, times, producer ids, counts, sizes, leader epochs.
So recovery, indexes, retention, scrubbing and replication of a segment need no key; a client that reads
records does, and gets what was appended, byte for byte.

It keeps records from who gets at the disk, a copy of it, or a backup: not from who has the node's
keys, and not against an attacker who puts another of this node's segments, whole and with its key, in
the place of one, or takes the end of a log away.
"""
