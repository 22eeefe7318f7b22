"""Stores that are not of S3, as processes: Azurite, which npm brings, and fake-gcs-server, which Go's proxy brings."""

import base64
import hashlib
import hmac
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.peers.go_modules import program
from tests.peers.sources import NoSourcesError, cache
from tools.nodes.ports import free_port
from tools.nodes.server_process import ServerProcess, listens, wait_until

BUCKET: Final = "tier"
HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 60.0

AZURITE: Final = "3.35.0"
"""The last version that Node.js 20 runs."""
ACCOUNT: Final = "devstoreaccount1"
ACCOUNT_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""Of Azurite's only account; the same everywhere."""
AZURE_VERSION: Final = "2023-11-03"
INSTALL_TIMEOUT_S: Final = 600.0

GCS_MODULE: Final = "github.com/fsouza/fake-gcs-server"
GCS_VERSION: Final = "v1.56.1"
GCS_SERVER: Final = Path(__file__).with_name("gcs_server.go")


class StoreServer(ServerProcess):
    """Has one bucket, or container."""

    url: str
    """Of the bucket, as ``tier.url`` names it."""
    environment_of_clients: Mapping[str, str]
    """Credentials, as obstore takes them."""

    def __init__(self, command: list[str], log: Path, port: int) -> None:
        super().__init__(command, log)
        self.port = port

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def endpoint_by(self, proxy: str) -> str:
        """The same by a proxy before it."""
        return self.endpoint.replace(f"http://{HOST}:{self.port}", proxy)

    def start(self) -> None:
        """Returns when it listens."""
        self.spawn()

        def ready() -> bool:
            self.check_running()
            return listens(self.port)

        wait_until(ready, "the store listens", START_TIMEOUT_S)


class AzureServer(StoreServer):
    """Azurite's blobs."""

    def __init__(self, folder: Path) -> None:
        """``folder``: for blobs. Raises NoSourcesError where it cannot be had."""
        port = free_port()
        command = ["node", str(_azurite()), "--silent", "--disableTelemetry"]
        command += ["--skipApiVersionCheck", "--blobHost", HOST, "--blobPort", str(port)]
        super().__init__([*command, "--location", str(folder)], folder / "azurite.log", port)
        self.url = f"az://{BUCKET}"
        self.environment_of_clients = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
        }

    @property
    def endpoint(self) -> str:
        """The account is in the path, where the provider has it in the name of the host."""
        return f"{super().endpoint}/{ACCOUNT}"

    def start(self) -> None:
        super().start()
        _make_container(f"{self.endpoint}/{BUCKET}?restype=container")


class GoogleServer(StoreServer):
    """fake-gcs-server, with the requests that obstore makes and it lacks; see ``gcs_server.go``."""

    def __init__(self, folder: Path) -> None:
        """``folder``: for objects. Raises NoSourcesError where it cannot be had."""
        port = free_port()
        command = [str(_gcs_server()), "-address", f"{HOST}:{port}", "-bucket", BUCKET]
        super().__init__([*command, "-folder", str(folder / "gcs")], folder / "gcs.log", port)
        self.url = f"gs://{BUCKET}"
        account = folder / "account.json"
        nothing = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        account.write_text(json.dumps({"disable_oauth": True, **nothing}))
        self.environment_of_clients = {"GOOGLE_SERVICE_ACCOUNT": str(account)}


def _azurite() -> Path:
    """Its program for blobs. Raises NoSourcesError."""
    folder = cache() / f"azurite-{AZURITE}"
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / "package.json").write_text("{}")
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            subprocess.run(
                [*command, f"azurite@{AZURITE}"],
                cwd=partial,
                capture_output=True,
                text=True,
                check=True,
                timeout=INSTALL_TIMEOUT_S,
            )
        except subprocess.CalledProcessError as error:
            raise NoSourcesError(f"npm: {error.stderr.strip()[-300:]}") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoSourcesError(f"npm: {error}") from None
        partial.rename(folder)
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def _gcs_server() -> Path:
    """Raises NoSourcesError."""
    digest = hashlib.sha256(GCS_SERVER.read_bytes()).hexdigest()[:8]
    name = f"fake-gcs-server-{GCS_VERSION}-{digest}"
    return program("gcs_server", name, GCS_MODULE, GCS_VERSION, str(GCS_SERVER))


def _make_container(url: str) -> None:
    """obstore cannot."""
    now = formatdate(usegmt=True)
    headers = f"x-ms-date:{now}\nx-ms-version:{AZURE_VERSION}\n"
    path = urlsplit(url).path
    signed = f"PUT{12 * chr(10)}{headers}/{ACCOUNT}{path}\nrestype:container"
    key = base64.b64decode(ACCOUNT_KEY)
    signature = base64.b64encode(hmac.digest(key, signed.encode(), "sha256")).decode()
    request = urllib.request.Request(
        url,
        method="PUT",
        headers={
            "x-ms-date": now,
            "x-ms-version": AZURE_VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
        },
    )
    with urllib.request.urlopen(request, timeout=START_TIMEOUT_S):
        pass
