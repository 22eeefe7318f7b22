"""Three nats-servers with JetStream."""

import json
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.trio import HOST, MEMBERS, WHOLE_TIMEOUT_S, number_in
from streamlog.cli.dev import embedded_nats
from tools.nodes.ports import free_port
from tools.nodes.server_process import ServerProcess, listens, program, wait_until


class JetStreamTrio:
    """Three nats-servers with JetStream: file storage, everything else its default.

    ``tuned``: with what ``streamlog dev`` gives to its nats-server.
    """

    name = "JetStream"

    def __init__(
        self,
        directory: Path,
        *,
        hosts: Sequence[str] = (HOST, HOST, HOST),
        inside: Callable[[int], list[str]] = lambda _: [],
        tuned: bool = False,
    ) -> None:
        directory.mkdir(parents=True)
        self._hosts = dict(zip(MEMBERS, hosts, strict=True))
        self._ports = {i: free_port() for i in MEMBERS}
        self._monitors = {i: free_port() for i in MEMBERS}
        routes = {i: free_port() for i in MEMBERS}
        urls = ", ".join(f'"nats://{self._hosts[i]}:{port}"' for i, port in routes.items())
        self._members: dict[int, ServerProcess] = {}
        for i in MEMBERS:
            config, host = directory / f"server-{i}.conf", self._hosts[i]
            config.write_text(
                f'server_name: server-{i}\nlisten: "{host}:{self._ports[i]}"\nmax_pending: 1GB\n'
                f'http: "{host}:{self._monitors[i]}"\n'
                f'jetstream {{ store_dir: "{directory}/store-{i}" }}\n'
                f'cluster {{ name: bench, listen: "{host}:{routes[i]}", routes: [{urls}] }}\n'
                f"{embedded_nats.SETTINGS if tuned else ''}"
            )
            log = directory / f"server-{i}.log"
            command = [*inside(i), program("nats-server"), "-c", str(config)]
            environment = embedded_nats.environment() if tuned else None
            self._members[i] = ServerProcess(command, log, environment)
            self.start(i)

    @property
    def pids(self) -> Sequence[int]:
        return [member.pid for member in self._members.values()]

    @property
    def member_pids(self) -> Sequence[int]:
        return self.pids

    def nats(self, *, without: int = 0) -> str:
        return self.nats_of(next(i for i in MEMBERS if i != without))

    def controller(self) -> int:
        """The meta leader."""
        address = f"http://{self._hosts[1]}:{self._monitors[1]}/jsz"
        with urllib.request.urlopen(address, timeout=5) as answer:
            return number_in(json.load(answer)["meta_cluster"]["leader"])

    def nats_of(self, member: int) -> str:
        """A client that is connected to the leader's own server saves a hop."""
        return f"{self._hosts[member]}:{self._ports[member]}"

    def pid(self, member: int) -> int:
        return self._members[member].pid

    def start(self, member: int) -> None:
        self._members[member].spawn()
        port, host = self._ports[member], self._hosts[member]
        wait_until(lambda: listens(port, host), f"nobody listens at {host}:{port}", WHOLE_TIMEOUT_S)

    def stop(self) -> None:
        for member in self._members.values():
            member.kill()
