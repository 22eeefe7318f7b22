"""Requests and their answers between nodes: as over TCP, but for what ``Links`` do to them."""

from collections.abc import Callable, Mapping

from streamlog.model import NodeId
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.links import Links


class Abandoned:
    """Tells whoever serves ``call`` that nobody waits for it any more."""

    def __init__(self, call: "Call") -> None:
        self.call = call


class Call:
    """One request. It ends once: by an answer, by a refusal, or when its time is up."""

    def __init__(
        self,
        links: Links,
        source: Host,
        target: Host,
        request: object,
        answered: Callable[[object], None],
        failed: Callable[[bool], None],
    ) -> None:
        self.source = source.node_id
        self.target = target.node_id
        self.request = request
        self._links = links
        self._source = source
        self._target = target
        self._answered = answered
        self._failed = failed
        self._life = source.life
        self._over = False

    def send(self, timeout_ms: int) -> None:
        self._links.carry(self.source, self.target, self._arrive)
        self._source.events.after(timeout_ms * 1_000, self._time_out)

    def answer(self, answer: object) -> None:
        """From the serving side; only the first one that arrives counts."""
        self._carry_back(lambda: self._answered(answer))

    def broken(self) -> None:
        """The process that was to answer is gone, and its machine says so."""
        self._carry_back(lambda: self._failed(False))

    def _arrive(self) -> None:
        target = self._target
        if not target.powered:
            return
        if target.process is None:
            self._carry_back(lambda: self._failed(True))
        else:
            target.after(0, self._serve)

    def _serve(self) -> None:
        process = self._target.process
        assert process is not None, "events of the dead are not run"
        process.serve(self.request, self)

    def _carry_back(self, end: Callable[[], None]) -> None:
        self._links.carry(self.target, self.source, lambda: self._end(end))

    def _end(self, end: Callable[[], None]) -> None:
        """Once, and only for the process that asked."""
        if not self._over and self._source.life == self._life:
            self._over = True
            self._source.after(0, end)

    def _time_out(self) -> None:
        if self._over:
            return
        self._end(lambda: self._failed(False))
        self._over = True
        self._links.carry(self.source, self.target, self._abandon)

    def _abandon(self) -> None:
        process = self._target.process
        if process is not None:
            self._target.after(0, lambda: process.serve(Abandoned(self), self))


class Rpc:
    """Who can be called."""

    def __init__(self, links: Links, hosts: Mapping[NodeId, Host]) -> None:
        self._links = links
        self._hosts = hosts

    def call(
        self,
        source: Host,
        target: NodeId,
        request: object,
        *,
        timeout_ms: int,
        answered: Callable[[object], None],
        failed: Callable[[bool], None],
    ) -> None:
        """``failed`` hears True if the port refuses: the process is certainly not there."""
        call = Call(self._links, source, self._hosts[target], request, answered, failed)
        call.send(timeout_ms)
