"""All cases there are, in the order of the tables."""

from typing import Any, Final

from benchmarks import (
    arrow_reading,
    audience,
    beside_kafka,
    cases,
    consumers,
    failover,
    footprint,
    headers,
    ledger,
    management,
    many,
    membership,
    polling,
    port,
    producing,
    reading,
    replicated,
    secured,
    spark_reading,
    starting,
    subjects,
)
from benchmarks.case import Case
from benchmarks.side import Sides
from benchmarks.trios import Trios

NODE: Final[tuple[Case[Sides], ...]] = (
    *cases.CASES,
    *headers.CASES,
    *port.CASES,
    *reading.CASES,
    *arrow_reading.CASES,
    *producing.CASES,
    *secured.CASES,
    *audience.CASES,
    *polling.CASES,
    *membership.CASES,
    *many.CASES,
    *footprint.CASES,
    *starting.CASES,
    *subjects.CASES,
    *management.CASES,
    *consumers.CASES,
    *ledger.CASES,
)
"""Of one node: ``python -m benchmarks``."""

CLUSTERS: Final[tuple[Case[Trios], ...]] = (*failover.CASES, *replicated.CASES)
"""Of three: ``python -m benchmarks.clusters``."""

SPARK: Final[tuple[Case[Sides], ...]] = spark_reading.CASES
"""Of one node, too, but only with ``--only spark``: they want 23 GB, and Spark's Kafka source from
Maven.
"""

KAFKA: Final[tuple[Case[Sides], ...]] = beside_kafka.CASES
"""One node beside Apache Kafka: ``python -m benchmarks --kafka``. It comes from Maven."""

ALL: Final[tuple[Case[Any], ...]] = (*NODE, *SPARK, *KAFKA, *CLUSTERS)
