"""The two clusters of a run, started when first asked for."""

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.jetstream_trio import JetStreamTrio
from benchmarks.network import HOST as OUTSIDE
from benchmarks.network import Network
from benchmarks.streamlog_trio import PortTrio, StreamlogTrio
from benchmarks.trio import MEMBERS, Trio


class Apart(NamedTuple):
    """A cluster each of whose members has a network namespace of its own."""

    trio: Trio
    network: Network


class Trios:
    """All are there at once, all but one idle, so that rounds can take turns."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._count = 0
        self._jetstream: JetStreamTrio | None = None
        self._jetstream_tuned: JetStreamTrio | None = None
        self._streamlog: StreamlogTrio | None = None
        self._port: PortTrio | None = None
        self._jetstream_apart: Apart | None = None
        self._streamlog_apart: Apart | None = None
        self._running = ExitStack()

    @property
    def jetstream(self) -> JetStreamTrio:
        if self._jetstream is None:
            self._jetstream = JetStreamTrio(self._folder("jetstream"))
            self._running.callback(self._jetstream.stop)
        return self._jetstream

    @property
    def jetstream_tuned(self) -> JetStreamTrio:
        if self._jetstream_tuned is None:
            self._jetstream_tuned = JetStreamTrio(self._folder("jetstream-tuned"), tuned=True)
            self._running.callback(self._jetstream_tuned.stop)
        return self._jetstream_tuned

    @property
    def streamlog(self) -> StreamlogTrio:
        if self._streamlog is None:
            self._streamlog = StreamlogTrio(self._folder("streamlog"))
            self._running.callback(self._streamlog.stop)
        return self._streamlog

    @property
    def port(self) -> PortTrio:
        if self._port is None:
            self._port = PortTrio(self._folder("port"))
            self._running.callback(self._port.stop)
        return self._port

    @property
    def jetstream_apart(self) -> Apart:
        if self._jetstream_apart is None:
            network = self._running.enter_context(Network(MEMBERS))
            hosts = [network.address(i) for i in MEMBERS]
            folder = self._folder("jetstream-apart")
            trio = JetStreamTrio(folder, hosts=hosts, inside=network.inside)
            self._jetstream_apart = self._kept(trio, network)
        return self._jetstream_apart

    @property
    def streamlog_apart(self) -> Apart:
        """The nats-server is outside, with the clients."""
        if self._streamlog_apart is None:
            network = self._running.enter_context(Network(MEMBERS))
            trio = StreamlogTrio(
                self._folder("streamlog-apart"),
                hosts=[network.address(i) for i in MEMBERS],
                nats_host=network.address(OUTSIDE),
                inside=network.inside,
            )
            self._streamlog_apart = self._kept(trio, network)
        return self._streamlog_apart

    def stop(self) -> None:
        """End all; the next that is asked for is a fresh one."""
        self._running.close()
        self._jetstream = self._jetstream_tuned = self._streamlog = self._port = None
        self._jetstream_apart = self._streamlog_apart = None

    def _kept(self, trio: Trio, network: Network) -> Apart:
        self._running.callback(trio.stop)
        return Apart(trio, network)

    def _folder(self, name: str) -> Path:
        self._count += 1
        return self.directory / f"{name}-{self._count}"
