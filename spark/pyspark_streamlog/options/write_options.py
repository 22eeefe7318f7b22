"""The options of a write, checked before anything is written."""

from collections.abc import Mapping
from typing import Final

from pyspark_streamlog.options.option_map import OptionMap
from pyspark_streamlog.options.option_names import unknown_option
from pyspark_streamlog.options.security_options import parse_security
from streamlog.arrow.sink.write_options import (
    BATCH_BYTES,
    BATCH_BYTES_MAX,
    DELIVERY_TIMEOUT_MS,
    WriteOptions,
)
from streamlog.client.addresses import parse_addresses
from streamlog.errors import ConfigError
from streamlog.record.compression import Compression

NAMES: Final = (
    "servers",
    "topic",
    "compression",
    "writeId",
    "batchBytes",
    "deliveryTimeoutMs",
    "security.tls",
    "security.caFile",
    "security.certFile",
    "security.keyFile",
    "security.keyPasswordFile",
)
SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark hands the sink of a stream its own options, too."""
CODECS: Final = tuple(codec.name.lower() for codec in Compression)


class SinkOptions(WriteOptions):
    """The same, parsed out of Spark's options."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> "SinkOptions":
        """Spark's options. Raises ConfigError."""
        given = OptionMap(options)
        _check_names(given, streaming=streaming)
        servers = given.text("servers")
        if servers is None:
            raise ConfigError("servers", "is missing", "name nodes as host:port,host:port")
        parse_addresses(servers)
        return cls(
            servers=servers,
            topic=given.text("topic"),
            compression=Compression.named(given.word("compression", CODECS, "none")),
            write_id=given.text("writeId"),
            batch_bytes=given.integer("batchBytes", BATCH_BYTES, most=BATCH_BYTES_MAX),
            delivery_timeout_ms=given.integer("deliveryTimeoutMs", DELIVERY_TIMEOUT_MS),
            security=parse_security(given),
        )


def _check_names(given: OptionMap, *, streaming: bool) -> None:
    known = {name.lower() for name in NAMES}
    for name in given.names():
        if name == "path":
            problem = "streams are written to over the socket API, not to files"
            raise ConfigError("path", problem, "set servers and topic instead")
        if name == "writeid" and streaming:
            problem = "a streaming query is known by its checkpoint"
            raise ConfigError("writeId", problem, "remove it")
        if name not in known and not (streaming and name in SPARKS_OWN):
            raise unknown_option(name, NAMES)
