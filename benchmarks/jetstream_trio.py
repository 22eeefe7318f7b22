"""Three nats-servers with JetStream."""

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import binary, free_port
from benchmarks.trio import HOST, MEMBERS, Member, number_in, wait_for_port


class JetStreamTrio:
    """Three nats-servers with JetStream: file storage, everything else its default."""

    name = "JetStream"

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._ports = {i: free_port() for i in MEMBERS}
        self._monitors = {i: free_port() for i in MEMBERS}
        routes = {i: free_port() for i in MEMBERS}
        urls = ", ".join(f'"nats://{HOST}:{port}"' for port in routes.values())
        self._members: dict[int, Member] = {}
        for i in MEMBERS:
            config = directory / f"server-{i}.conf"
            config.write_text(
                f'server_name: server-{i}\nlisten: "{HOST}:{self._ports[i]}"\nmax_pending: 1GB\n'
                f'http: "{HOST}:{self._monitors[i]}"\n'
                f'jetstream {{ store_dir: "{directory}/store-{i}" }}\n'
                f'cluster {{ name: bench, listen: "{HOST}:{routes[i]}", routes: [{urls}] }}\n'
            )
            log = directory / f"server-{i}.log"
            self._members[i] = Member([binary("nats-server"), "-c", str(config)], log)
            self.start(i)

    @property
    def pids(self) -> Sequence[int]:
        return [member.pid for member in self._members.values()]

    @property
    def member_pids(self) -> Sequence[int]:
        return self.pids

    def nats(self, *, without: int = 0) -> str:
        member = next(i for i in MEMBERS if i != without)
        return f"{HOST}:{self._ports[member]}"

    def controller(self) -> int:
        """The meta leader."""
        address = f"http://{HOST}:{self._monitors[1]}/jsz"
        with urllib.request.urlopen(address, timeout=5) as answer:
            return number_in(json.load(answer)["meta_cluster"]["leader"])

    def nats_of(self, member: int) -> str:
        """A client that is connected to the leader's own server saves a hop."""
        return f"{HOST}:{self._ports[member]}"

    def pid(self, member: int) -> int:
        return self._members[member].pid

    def start(self, member: int) -> None:
        self._members[member].start()
        wait_for_port(self._ports[member])

    def stop(self) -> None:
        for member in self._members.values():
            member.kill()
