"""An S3 for tests and benchmarks: S3Proxy over a local folder, which Maven brings."""

import os
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from tools.maven import archives
from tools.nodes.ports import LOOPBACK, free_port

VERSION: Final = "3.3.0"
ARTIFACTS: Final = (
    # S3Proxy needs a later one than Maven chooses.
    "com.fasterxml.jackson.core:jackson-annotations:2.21",
    f"org.gaul:s3proxy:{VERSION}",
)
BUCKET: Final = "tier"
ACCESS_KEY: Final = "access"
SECRET_KEY: Final = "secret"
START_TIMEOUT_S: Final = 60.0

_SETTINGS: Final = """
s3proxy.endpoint=http://{host}:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={access}
s3proxy.credential={secret}
s3proxy.ignore-unknown-headers=true
jclouds.provider=filesystem-nio2
jclouds.identity=unused
jclouds.credential=unused
jclouds.filesystem.basedir={folder}
"""
_LOGBACK: Final = """
<configuration>
  <appender name="E" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%level %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="E"/></root>
</configuration>
"""


class S3ServerError(Exception):
    """The server does not start."""


class S3Server:
    """A process that serves one bucket until ``stop``."""

    def __init__(self, folder: Path, jars: Path) -> None:
        """``folder``: for objects and settings. ``jars``: see ``jars``."""
        self._folder = folder
        self._jars = jars
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def bucket_folder(self) -> Path:
        """Where its objects are files."""
        return self._folder / "data" / BUCKET

    @property
    def pid(self) -> int:
        if self._process is None:
            raise S3ServerError("the server does not run")
        return self._process.pid

    def __enter__(self) -> "S3Server":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when it listens. Raises S3ServerError."""
        self.bucket_folder.mkdir(parents=True, exist_ok=True)
        settings, logback = self._folder / "s3proxy.conf", self._folder / "logback.xml"
        settings.write_text(
            _SETTINGS.format(
                host=LOOPBACK,
                port=self.port,
                access=ACCESS_KEY,
                secret=SECRET_KEY,
                folder=self.bucket_folder.parent,
            )
        )
        logback.write_text(_LOGBACK)
        with (self._folder / "s3proxy.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "java", "-XX:+UseSerialGC", "-Xmx512m",
                    f"-Dlogback.configurationFile={logback}",
                    "-cp", str(self._jars / "*"), "org.gaul.s3proxy.Main",
                    "--properties", str(settings),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        until = time.monotonic() + START_TIMEOUT_S
        while not _listens(self.port):
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                text = (self._folder / "s3proxy.log").read_text(errors="replace")
                raise S3ServerError(f"no S3 server: {text[-500:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


def jars(cache: Path) -> Path:
    """The server's archives, kept in ``cache``. Raises MavenError."""
    return archives(ARTIFACTS, cache / f"s3proxy-{VERSION}")


def credentials() -> dict[str, str]:
    """As obstore takes them from the environment."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
    }


def set_credentials() -> None:
    """Of this process."""
    os.environ.update(credentials())


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
