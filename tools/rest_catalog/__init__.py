"""A REST catalog for tests: Iceberg's own servlet, which Maven brings, over one of its catalogs: JDBC with SQLite, or
Hadoop's, which is a folder.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.maven import archives
from tools.nodes.ports import free_port
from tools.nodes.server_process import ServerProcess, listens, wait_until

ICEBERG: Final = "1.11.0"
ARTIFACTS: Final = (
    f"org.apache.iceberg:iceberg-core:{ICEBERG}",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}:jar:tests",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.0.16",
    "org.xerial:sqlite-jdbc:3.47.1.0",
    "org.slf4j:slf4j-nop:2.0.17",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
)
START_TIMEOUT_S: Final = 120.0


class RestCatalog(ServerProcess):
    """May be killed and spawned again: its state is in ``folder``."""

    def __init__(self, folder: Path, jars: Path, *, warehouse: Path | None = None) -> None:
        """``jars``: see ``jars``. ``warehouse``: of the Hadoop catalog that is to be served; None: of JDBC."""
        self.port = free_port()
        if warehouse is None:
            settings = {
                "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
                "uri": f"jdbc:sqlite:{folder / 'rest.db'}",
                "warehouse": f"file://{folder / 'warehouse'}",
                "jdbc.schema-version": "V1",
            }
        else:
            hadoop = "org.apache.iceberg.hadoop.HadoopCatalog"
            settings = {"catalog-impl": hadoop, "warehouse": str(warehouse)}
        command = ["java", "-XX:+UseSerialGC", "-Xmx512m", "-cp", str(jars / "*")]
        command += [str(Path(__file__).with_name("RestCatalog.java")), str(self.port)]
        command += [f"{name}={value}" for name, value in settings.items()]
        super().__init__(command, folder / "rest.log")

    @property
    def properties(self) -> Mapping[str, str]:
        """As PyIceberg takes them."""
        return {"type": "rest", "uri": f"http://127.0.0.1:{self.port}"}

    def start(self) -> None:
        self.spawn()

        def ready() -> bool:
            self.check_running()
            return listens(self.port)

        wait_until(ready, "the REST catalog listens", START_TIMEOUT_S)


def jars(cache: Path) -> Path:
    """The server's archives, kept in ``cache``. Raises MavenError."""
    return archives(ARTIFACTS, cache / f"iceberg-rest-{ICEBERG}")
