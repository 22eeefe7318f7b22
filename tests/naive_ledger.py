"""The ledger's rules in the plainest way, for the real ones to be held to.

Written from docs/ledger-format.md. It shares no line with ``streamlog.ledger``: one record at a
time, nothing kept that could be computed again, signatures checked with nacl by hand.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import Any

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from streamlog.record.codec import Record


def number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


def length(data: bytes | None) -> bytes:
    return number(-1 if data is None else len(data), 4)


def encoded(record: Record) -> bytes:
    headers = b""
    for name, value in record.headers:
        headers += number(len(name.encode()), 4) + length(value) + name.encode() + (value or b"")
    lengths = length(record.key) + length(record.value) + number(len(headers), 4)
    fixed = number(record.offset, 8) + number(record.timestamp_ms, 8) + lengths
    return fixed + (record.key or b"") + (record.value or b"") + headers


def header(record: Record, name: str) -> bytes | None:
    for found, value in record.headers:
        if found == name:
            return value
    return None


class NaiveLedger:
    """Feed it all records of a stream; ``blocks`` are the chain then."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)
        genesis = next(record for record in self.records if self.is_genesis(record))
        self.config_text = genesis.value or b""
        self.config: dict[str, Any] = json.loads(self.config_text)
        self.start_offset = self.config["start_offset"]
        self.channel = self.config["channel"]
        self.pending: list[Record] = []
        self.blocks: list[bytes] = []
        self.previous_hash = bytes(32)
        self.last_configuration = 0
        self.put([genesis], self.start_offset)

    def cut_all(self) -> list[bytes]:
        for record in self.records:
            self.take(record)
        return self.blocks

    def is_genesis(self, record: Record) -> bool:
        config = self.read(record)
        return config is not None and config["sequence"] == 0

    def read(self, record: Record) -> Any:
        """The tests' streams have configurations that are right, or no JSON at all."""
        if header(record, "Streamlog-Ledger") != b"configuration":
            return None
        try:
            return json.loads(record.value or b"")
        except ValueError:
            return None

    def take(self, record: Record) -> None:
        if record.offset < self.start_offset:
            return
        if not any(name == "Streamlog-Ledger" for name, _ in record.headers):
            self.ordinary(record)
        elif header(record, "Streamlog-Ledger") == b"time-to-cut":
            if header(record, "Streamlog-Ledger-Block") == str(len(self.blocks)).encode():
                self.cut(record.offset + 1)
        elif (config := self.read(record)) is not None:
            self.configuration(record, config)

    def ordinary(self, record: Record) -> None:
        limits = self.config["limits"]
        if self.config["writers"] and not self.is_signed(record, b"", self.config["writers"]):
            return
        size = sum(len(encoded(each)) for each in [*self.pending, record])
        if size > limits["preferred_max_bytes"]:
            self.cut(record.offset)
        self.pending.append(record)
        is_large = len(encoded(record)) > limits["preferred_max_bytes"]
        if is_large or len(self.pending) == limits["batch_size"]:
            self.cut(record.offset + 1)

    def configuration(self, record: Record, config: dict[str, Any]) -> None:
        follows = config["sequence"] == self.config["sequence"] + 1
        same = all(config[key] == self.config[key] for key in ("channel", "start_offset"))
        signers = self.config["administrators"] or self.config["writers"]
        if signers and not self.is_signed(record, b"configuration", signers):
            return
        if follows and same:
            self.cut(record.offset)
            self.last_configuration = len(self.blocks)
            self.put([record], record.offset + 1)
            self.config, self.config_text = config, record.value or b""

    def is_signed(self, record: Record, kind: bytes, signers: list[dict[str, str]]) -> bool:
        name = header(record, "Streamlog-Ledger-Signer")
        signature = header(record, "Streamlog-Ledger-Signature")
        keys = [entry["public_key"] for entry in signers if entry["name"].encode() == name]
        if not keys or signature is None:
            return False
        channel = self.channel.encode()
        message = b"streamlog ledger record 1\0" + number(len(channel), 4) + number(len(kind), 4)
        message += length(record.key) + length(record.value) + channel + kind
        message += (record.key or b"") + (record.value or b"")
        try:
            VerifyKey(bytes.fromhex(keys[0])).verify(message, base64.b64decode(signature))
        except (BadSignatureError, ValueError):
            return False
        return True

    def cut(self, next_offset: int) -> None:
        if self.pending:
            self.put(self.pending, next_offset)
            self.pending = []

    def put(self, records: list[Record], next_offset: int) -> None:
        data = b"".join(encoded(record) for record in records)
        channel = self.channel.encode()
        head = b"SLBK" + bytes([1, len(channel)]) + number(len(self.blocks), 8)
        head += self.previous_hash + hashlib.sha256(data).digest()
        head += number(records[0].offset, 8) + number(records[-1].offset + 1, 8)
        head += number(next_offset, 8) + number(self.last_configuration, 8)
        head += number(len(records), 4) + number(len(data), 8) + channel
        self.previous_hash = hashlib.sha256(head).digest()
        self.blocks.append(head + data)
