"""Kafka's own command-line tools, by Maven into the cache of peers."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.peers.sources import NoSourcesError, cache
from tools.maven import MavenError, archives

VERSION: Final = "4.1.0"
COMMAND_TIMEOUT_S: Final = 60.0
CLASSES: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
}
"""What the scripts of Kafka's distribution run."""
CONFIG_OPTIONS: Final = {
    "kafka-console-consumer": "--consumer.config",
    "kafka-console-producer": "--producer.config",
}


class Done(NamedTuple):
    code: int
    out: str
    err: str


class KafkaCommands(NamedTuple):
    """``folder``: for the settings of who asks."""

    servers: str
    folder: Path

    def run(self, who: Mapping[str, str], name: str, *options: str, put: str = "") -> Done:
        settings = self.folder / "client.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in who.items()))
        config = CONFIG_OPTIONS.get(name, "--command-config")
        command = [
            "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m",
            "-cp", str(kafka_jars() / "*"), CLASSES[name],
            "--bootstrap-server", self.servers, config, str(settings), *options,
        ]  # fmt: skip
        done = subprocess.run(
            command,
            input=put,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def by_password(mechanism: str, user: str, password: str, ca: Path) -> dict[str, str]:
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    module = f"org.apache.kafka.common.security.{kind}LoginModule"
    return {
        **_trusting(ca),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


def by_certificate(ca: Path, own: Path | None) -> dict[str, str]:
    """``own``: the certificate with its key in one PEM file."""
    shown = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)}
    return {**_trusting(ca), "security.protocol": "SSL", **({} if own is None else shown)}


def _trusting(ca: Path) -> dict[str, str]:
    return {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "default.api.timeout.ms": "8000",
        "request.timeout.ms": "4000",
    }


def kafka_jars() -> Path:
    """Of the commands. Raises NoSourcesError where they cannot be had."""
    wanted = [f"org.apache.kafka:{it}:{VERSION}" for it in ("kafka_2.13", "kafka-tools")]
    try:
        return archives(wanted, cache() / f"kafka-commands-{VERSION}")
    except MavenError as error:
        raise NoSourcesError(str(error)) from None
