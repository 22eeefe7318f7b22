"""What a replica has on disk: its segment files read batch by batch, and what must hold of them."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from streamlog.log.encryption import key_file
from streamlog.log.encryption.cipher import BatchCipher
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.record.batch import ENCRYPTED, batches, check_batch
from streamlog.record.codec import Record, iter_records


class Stored(NamedTuple):
    """A record as it lies in a log. ``identity``: its ``Nats-Msg-Id``, empty if it has none."""

    offset: int
    identity: str
    subject: str
    value: bytes


class StoredBatch(NamedTuple):
    """Offsets ``[start, stop)``; the digest is of all its bytes."""

    start: int
    stop: int
    epoch: int
    digest: bytes


class ReplicaLog(NamedTuple):
    """One replica of one partition, whole."""

    name: str
    batches: Sequence[StoredBatch]
    records: Sequence[Stored]

    @property
    def start(self) -> int:
        return self.batches[0].start if self.batches else 0

    @property
    def end(self) -> int:
        return self.batches[-1].stop if self.batches else 0


def read_replica(folder: Path, name: str = "", keys: KeyRing | None = None) -> ReplicaLog:
    """All whole batches of a partition's folder, as they were appended. ``keys``: to those that are
    encrypted. Raises CorruptBatch for a wrong checksum.
    """
    found: list[StoredBatch] = []
    records: list[Stored] = []
    for segment in sorted(folder.glob("*.log")):
        cipher = _cipher(segment.with_suffix(".key"), keys)
        for stored_header, content in batches(segment.read_bytes()):
            check_batch(content)
            batch: bytes | memoryview = content
            if stored_header.attributes & ENCRYPTED:
                assert cipher is not None
                batch = cipher.decrypted(content)
            header = check_batch(batch)
            digest = hashlib.sha256(batch).digest()
            found.append(
                StoredBatch(header.base_offset, header.next_offset, header.leader_epoch, digest)
            )
            records += map(stored, iter_records(batch))
    return ReplicaLog(name or str(folder), found, records)


def _cipher(path: Path, keys: KeyRing | None) -> BatchCipher | None:
    if keys is None or not path.exists():
        return None
    return BatchCipher(keys.unwrapped(key_file.decode(path.read_bytes(), str(path)), str(path)))


def stored(record: Record) -> Stored:
    headers = {name: value or b"" for name, value in record.headers}
    identity, subject = headers.get("Nats-Msg-Id", b""), headers.get("subject", b"")
    return Stored(record.offset, identity.decode(), subject.decode(), record.value or b"")


def holes(log: ReplicaLog) -> list[str]:
    """Where offsets are not dense, batch after batch and record after record, or epochs fall."""
    problems = []
    for before, after in pairwise(log.batches):
        if after.start != before.stop:
            problems.append(f"{log.name}: offset {after.start} comes after {before.stop - 1}")
        if after.epoch < before.epoch:
            problems.append(f"{log.name}: at {after.start} epoch {after.epoch} < {before.epoch}")
    offsets = [record.offset for record in log.records]
    if offsets != list(range(log.start, log.end)):
        problems.append(f"{log.name}: {len(offsets)} records in [{log.start}, {log.end})")
    return problems


def differences(logs: Sequence[ReplicaLog], committed_end: int) -> list[str]:
    """Where replicas do not have the same bytes below ``committed_end``, an end of a batch."""
    problems = []
    start = max((log.start for log in logs), default=0)
    for log in logs:
        if log.end < committed_end:
            problems.append(f"{log.name}: ends at {log.end}, committed is up to {committed_end}")
        end = min(log.end, logs[0].end, committed_end)
        mine, first = (
            [batch for batch in one.batches if start <= batch.start < end] for one in (log, logs[0])
        )
        for a, b in zip(mine, first, strict=False):
            if a != b:
                problems.append(f"{log.name} differs from {logs[0].name} from {a.start} on")
                break
    return problems
