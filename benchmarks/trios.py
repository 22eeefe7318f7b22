"""The two clusters of a run, started when first asked for."""

from pathlib import Path

from benchmarks.jetstream_trio import JetStreamTrio
from benchmarks.streamlog_trio import StreamlogTrio


class Trios:
    """Both are there at once, one of them idle, so that rounds can take turns."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._count = 0
        self._jetstream: JetStreamTrio | None = None
        self._streamlog: StreamlogTrio | None = None

    @property
    def jetstream(self) -> JetStreamTrio:
        if self._jetstream is None:
            self._jetstream = JetStreamTrio(self._folder("jetstream"))
        return self._jetstream

    @property
    def streamlog(self) -> StreamlogTrio:
        if self._streamlog is None:
            self._streamlog = StreamlogTrio(self._folder("streamlog"))
        return self._streamlog

    def stop(self) -> None:
        """End both; the next that is asked for is a fresh one."""
        if self._jetstream is not None:
            self._jetstream.stop()
        if self._streamlog is not None:
            self._streamlog.stop()
        self._jetstream = self._streamlog = None

    def _folder(self, name: str) -> Path:
        self._count += 1
        return self.directory / f"{name}-{self._count}"
