"""Kafka's own command-line tools, by Maven into the cache of peers."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.peers.sources import NoSourcesError, cache

VERSION: Final = "4.1.0"
MAVEN_TIMEOUT_S: Final = 600.0
COMMAND_TIMEOUT_S: Final = 60.0
_POM: Final = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>peers</groupId>
  <artifactId>kafka-commands</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY: Final = """
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>
"""
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
    return _jars("kafka-commands", "kafka_2.13", "kafka-tools")


def streams_jars() -> Path:
    """Of Kafka Streams. Raises NoSourcesError where they cannot be had."""
    return _jars("kafka-streams", "kafka-streams")


def _jars(name: str, *artifacts: str) -> Path:
    folder = cache() / f"{name}-{VERSION}"
    if not folder.exists():
        if shutil.which("java") is None or shutil.which("mvn") is None:
            raise NoSourcesError("java and mvn are needed")
        partial = folder.with_suffix(".part")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        parts = (_DEPENDENCY.format(it, VERSION) for it in artifacts)
        (partial / "pom.xml").write_text(_POM.format("".join(parts)))
        _maven(partial, "dependency:copy-dependencies", f"-DoutputDirectory={partial}")
        partial.rename(folder)
    return folder


def _maven(folder: Path, *arguments: str) -> None:
    try:
        subprocess.run(
            ["mvn", "--quiet", "--batch-mode", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=MAVEN_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        raise NoSourcesError(f"mvn: {error.stdout.strip()[-200:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSourcesError(f"mvn: {error}") from None
