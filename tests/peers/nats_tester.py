"""The service that nats.go's own tests ask for servers, with nodes of streamlog in their place.

::

    python -m tests.peers.nats_tester FOLDER
    TESTER_NATS_URL=<what it prints> go test ./test/

The tests (of nats.go 1.53 and later) name no server program: they ask ``tester.create.server``,
``tester.create.cluster``, ``tester.stop.server`` and so on over NATS, with JSON, and connect to the
ports in the answers. A nats-server carries these requests; what it creates are nodes with a NATS
port. What a node cannot be configured to is refused with an error that begins with NOT_OFFERED, so
that the test fails and says why.
"""

import asyncio
import itertools
import json
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import nats
from nats.aio.msg import Msg

from tests.certificate_authority import CertificateAuthority
from tests.peers.nats_configuration import TOP_LEVEL, NotOfferedError
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import NatsServer

NOT_OFFERED: Final = "not offered by streamlog"
STOP_TIMEOUT_S: Final = 8.0

_KEY = re.compile(r"^\s*(\w+)\s*[:=]?\s*(.*?)\s*$")
_DOMAIN = re.compile(r"""\s*domain\s*[:=]?\s*"?([\w-]+)"?\s*""")


class Instance(NamedTuple):
    """What one request has created."""

    identity: str
    kind: str
    description: str
    cluster: Cluster
    tls: dict[str, str] | None

    def servers(self) -> list[dict[str, Any]]:
        return [
            {
                "name": self.name_of(node),
                "cluster": self.identity,
                "port": int(node.port_url.rpartition(":")[2]),
                "running": node.is_running(),
            }
            for node in self.cluster.nodes.values()
        ]

    def name_of(self, node: NodeProcess) -> str:
        return f"{self.identity}-n{node.number}"

    def status(self) -> dict[str, Any]:
        return {
            "id": self.identity,
            "description": self.description,
            "kind": self.kind,
            "servers": self.servers(),
        }


class Tester:
    """All instances. Its verbs are the last words of the subjects."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._instances: dict[str, Instance] = {}
        self._numbers = itertools.count(1)
        self.verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "create.server": lambda asked: self.create("server", 1, asked),
            "create.cluster": lambda asked: self.create("cluster", asked["servers"], asked),
            "create.super-cluster": self.refuse,
            "update.server": self.refuse,
            "reload.server": self.refuse,
            "destroy": self.destroy,
            "stop.server": self.stop,
            "start.server": self.start,
            "list": lambda _: {"instances": [it.status() for it in self._instances.values()]},
            "status": self.status,
            "reset": self.reset,
        }

    def create(self, kind: str, nodes: int, asked: dict[str, Any]) -> dict[str, Any]:
        settings = _settings(asked)
        identity = f"i{next(self._numbers)}"
        if nodes > 1:
            settings["cluster"] = {"id": identity}
        folder = self._folder / identity
        tls = self._certificates(folder, asked["tls"], settings) if asked.get("tls") else None
        cluster = Cluster(folder, nodes=nodes, settings=settings, nats=NoNats())
        cluster.__enter__()
        instance = Instance(identity, kind, asked.get("description", ""), cluster, tls)
        self._instances[identity] = instance
        return {**instance.status(), **({"tls": tls} if tls else {})}

    def refuse(self, asked: dict[str, Any]) -> dict[str, Any]:
        raise NotOfferedError("other settings while it runs")

    def destroy(self, asked: dict[str, Any]) -> dict[str, Any]:
        instance = self._instances.pop(asked["instance_id"], None)
        if instance is not None:
            instance.cluster.close()
            shutil.rmtree(self._folder / instance.identity, ignore_errors=True)
        return {"destroyed": instance is not None}

    def stop(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._node(asked["name"])[1].end(STOP_TIMEOUT_S)
        return {"shutdown": True}

    def start(self, asked: dict[str, Any]) -> dict[str, Any]:
        instance, node = self._node(asked["name"])
        instance.cluster.start(node.number)
        return {"started": True}

    def status(self, asked: dict[str, Any]) -> dict[str, Any]:
        wanted = asked.get("instance_id")
        found = (it for it in self._instances.values() if wanted in (None, "", it.identity))
        return {"instances": [it.status() for it in found]}

    def reset(self, asked: dict[str, Any]) -> dict[str, Any]:
        for identity in list(self._instances):
            self.destroy({"instance_id": identity})
        return {"shutdown": True}

    def _node(self, name: str) -> tuple[Instance, NodeProcess]:
        for instance in self._instances.values():
            for node in instance.cluster.nodes.values():
                if instance.name_of(node) == name:
                    return instance, node
        raise LookupError(f"no server is called {name}")

    def _certificates(
        self, folder: Path, asked: dict[str, Any], settings: Settings
    ) -> dict[str, str]:
        """As the test is to have them; ``settings`` get the node's."""
        authority = CertificateAuthority(folder / "certificates")
        hosts = asked.get("sans") or ("localhost", "127.0.0.1", "::1")
        node, client = authority.issue("node", *hosts), authority.issue("client")
        mutual = asked.get("mode", "mutual") != "server"
        settings["tls"] = {**node.settings(), "client_ca": str(authority.ca)}
        settings["tls"]["client_auth"] = "required" if mutual else "none"
        settings["http"] = {"tls": False}
        settings["nats_listen"]["tls_first"] = bool(asked.get("handshake_first"))
        told = {"ca_pem": authority.ca.read_text()}
        if mutual:
            told["client_cert_pem"] = client.cert.read_text()
            told["client_key_pem"] = client.key.read_text()
        return told


def _settings(asked: dict[str, Any]) -> Settings:
    """Raises NotOfferedError for what has no setting of ours."""
    listen: dict[str, Any] = {}
    nats: dict[str, Any] = {"default_api_prefix": True}
    if asked.get("template"):
        raise NotOfferedError("a configuration of nats-server")
    for name, body in asked.get("snippets", {}).items():
        if name == "jetstream" and (match := _DOMAIN.fullmatch(body)):
            nats["domain"] = match[1]
            continue
        if name != "top":
            raise NotOfferedError(f"`{name}` of nats-server's configuration")
        for line in filter(str.strip, body.splitlines()):
            key, value = _KEY.fullmatch(line).groups()  # type: ignore[union-attr]
            if key not in TOP_LEVEL or not value.isdigit():
                raise NotOfferedError(f"`{key}` of nats-server's configuration")
            listen[TOP_LEVEL[key]] = int(value)
    return {"nats": nats, "nats_listen": listen}


async def serve(url: str, tester: Tester) -> None:
    client = await nats.connect(url)

    async def answer(message: Msg) -> None:
        verb = message.subject.removeprefix("tester.")
        try:
            asked = json.loads(message.data or b"{}")
            told = await asyncio.to_thread(tester.verbs[verb], asked)
        except NotOfferedError as error:
            headers = {"Nats-Service-Error": f"{NOT_OFFERED}: {error}"}
            await client.publish(message.reply, b"", headers=headers)
        except Exception as error:
            headers = {"Nats-Service-Error": f"{type(error).__name__}: {error}"[:500]}
            await client.publish(message.reply, b"", headers=headers)
        else:
            await message.respond(json.dumps(told).encode())

    await client.subscribe("tester.>", cb=answer)
    await client.flush()
    print(url, flush=True)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    await client.close()


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    server = NatsServer(folder)
    tester = Tester(folder)
    try:
        server.start()
        asyncio.run(serve(server.url, tester))
    finally:
        tester.reset({})
        server.kill()


if __name__ == "__main__":
    main()
