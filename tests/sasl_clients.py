"""Stock Kafka clients that log in: each writes some records and reads them again."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

TIMEOUT_S: Final = 30.0
BOOTSTRAP_MS: Final = 30_000
"""Who is refused is told so before that, also on a machine that has much else to do."""
REASONS: Final = ("wrong user or password", "not to be believed")
"""Why a login is refused."""


class Refused(Exception):
    """The client says that the node did not let it in."""


class LogIn(NamedTuple):
    """As whom, and by what."""

    mechanism: str
    user: str = ""
    secret: str = ""
    """The password, or the token."""
    ca: str | None = None
    """The file of the CA where there is TLS."""

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.ca else "SASL_PLAINTEXT"


Values = Sequence[bytes]
RoundTrip = Callable[[str, str, LogIn, Values], list[bytes]]
"""Servers, topic: what was written there comes back. Raises Refused."""


def librdkafka(servers: str, login: LogIn, **more: object) -> dict[str, Any]:
    """Settings of confluent-kafka."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": login.protocol,
        "sasl.mechanisms": login.mechanism,
        "log_level": 0,
        **more,
    }
    if login.ca:
        settings["ssl.ca.location"] = login.ca
    if login.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (login.secret, time.time() + 3600)
    else:
        settings |= {"sasl.username": login.user, "sasl.password": login.secret}
    return settings


def confluent(servers: str, topic: str, login: LogIn, values: Values) -> list[bytes]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

    refusals: list[str] = []

    def told(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            refusals.append(error.str())

    producer = Producer(librdkafka(servers, login, error_cb=told))
    for value in values:
        producer.produce(topic, value, partition=0)
    deadline = time.monotonic() + TIMEOUT_S
    while len(producer):
        producer.poll(0.05)
        if refusals:
            producer.purge()
            producer.poll(0)
            raise Refused(refusals[0])
        assert time.monotonic() < deadline, "nothing was taken in"
    consumer = Consumer(librdkafka(servers, login, **{"group.id": "sasl", "error_cb": told}))
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[bytes] = []
        while len(found) < len(values) and time.monotonic() < deadline:
            for message in consumer.consume(100, timeout=0.2):
                assert message.error() is None, message.error()
                found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


def aiokafka(servers: str, topic: str, login: LogIn, values: Values) -> list[bytes]:
    return asyncio.run(_aiokafka(servers, topic, login, values))


async def _aiokafka(servers: str, topic: str, login: LogIn, values: Values) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return login.secret

    settings: dict[str, Any] = {
        "bootstrap_servers": servers,
        "security_protocol": login.protocol,
        "sasl_mechanism": login.mechanism,
        "ssl_context": _context(login),
    }
    if login.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    else:
        settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.secret}
    producer = AIOKafkaProducer(**settings)
    try:
        await producer.start()
    except (AuthenticationFailedError, KafkaConnectionError) as error:
        await producer.stop()
        raise Refused(str(error)) from error
    try:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(auto_offset_reset="earliest", **settings)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        async with asyncio.timeout(TIMEOUT_S):
            return [(await consumer.getone()).value or b"" for _ in values]
    finally:
        await consumer.stop()


def kafka_python(servers: str, topic: str, login: LogIn, values: Values) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return login.secret

    settings: dict[str, Any] = {
        "bootstrap_servers": servers.split(","),
        "security_protocol": login.protocol,
        "sasl_mechanism": login.mechanism,
        "ssl_context": _context(login),
    }
    if login.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    else:
        settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.secret}
    producer = KafkaProducer(bootstrap_timeout_ms=BOOTSTRAP_MS, **settings)
    sent = [producer.send(topic, value, partition=0) for value in values]
    for it in sent:
        it.get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        auto_offset_reset="earliest", enable_auto_commit=False, group_id=None, **settings
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < len(values) and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=200).values():
                found += [record.value for record in records]
        return found
    finally:
        consumer.close()


def refused_kafka_python(servers: str, topic: str, login: LogIn, values: Values) -> list[bytes]:
    """In a process of its own, for it leaves its sockets open and tries again until its patience
    ends; what it was told is in its log.
    """
    call = f"kafka_python({servers!r}, {topic!r}, LogIn(*{tuple(login)!r}), {list(values)!r})"
    program = f"import logging; logging.basicConfig(); from tests.sasl_clients import *; {call}"
    root = Path(__file__).parents[1]
    told = ""
    with subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, cwd=root
    ) as client:
        assert client.stderr is not None
        for line in client.stderr:
            told += line
            if any(reason in line for reason in REASONS):
                client.kill()
                break
    assert client.returncode != 0
    raise Refused(told)


def _context(login: LogIn) -> Any:
    if login.ca is None:
        return None
    import ssl

    return ssl.create_default_context(cafile=login.ca)


CLIENTS: Final[dict[str, RoundTrip]] = {
    "confluent": confluent,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}
REFUSED: Final[dict[str, RoundTrip]] = {**CLIENTS, "kafka-python": refused_kafka_python}
"""Those that raise Refused."""
