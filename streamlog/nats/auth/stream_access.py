"""What a client of the port may do with the subjects that streams take.

To publish to such a subject needs WRITE on each stream that takes it. A plain subscription that would show a
stream's messages needs READ on the stream, since it shows what a consumer gets; so does each delivery, since streams
and rules change. To acknowledge what a JetStream consumer delivers needs READ on the stream, too. Beside that the
lists of subjects hold (``subject_permissions``).
"""

from collections.abc import Callable, Iterable
from typing import Final

from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.stream_config import is_internal
from streamlog.metadata.stream.subjects import overlap
from streamlog.nats.auth.port_authenticator import AdmittedClient
from streamlog.nats.router import Callback, Router, Subscription

ACK_PREFIX: Final = b"$JS.ACK."
SUBJECTS_MAX: Final = 10_000
"""Subjects of one connection whose streams are remembered."""


class StreamIndex:
    """The streams by the subjects that they take: ``apply`` at each change of the image."""

    def __init__(self) -> None:
        self._router = Router()
        self._places = Callback(self._router, failed=_never)
        self._patterns: dict[tuple[str, str], Subscription] = {}
        """By stream and pattern."""
        self._by_first: dict[str, set[tuple[str, str]]] = {}
        """The same by the first token of the pattern."""

    @property
    def generation(self) -> int:
        """Grows with each change."""
        return self._router.generation

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        for change in new.changes(old):
            before, after = _patterns(change.old), _patterns(change.new)
            for key in before - after:
                self._router.remove(self._patterns.pop(key))
                self._by_first[_first(key[1])].discard(key)
            for key in after - before:
                stream, pattern = key
                added = Subscription(self._places, pattern.encode(), target=stream)
                self._router.add(added)
                self._patterns[key] = added
                self._by_first.setdefault(_first(pattern), set()).add(key)

    def taking(self, subject: bytes) -> list[str]:
        """Streams that take it."""
        plain, _ = self._router.matches(subject)
        return [found.target for found in plain]

    def overlapping(self, pattern: str) -> set[str]:
        """Streams that take some subject that ``pattern`` matches."""
        first = _first(pattern)
        firsts: Iterable[str] = self._by_first if first in "*>" else (first, "*", ">")
        return {
            stream
            for each in firsts
            for stream, taken in self._by_first.get(each, ())
            if overlap(pattern, taken)
        }


class StreamAccess:
    """Of one client."""

    def __init__(self, client: AdmittedClient, index: StreamIndex) -> None:
        self._client = client
        self._permissions = client.permissions
        self._index = index
        self._streams: dict[bytes, list[str]] = {}
        """By subject, of ``_generation``."""
        self._generation = -1

    @property
    def version(self) -> tuple[object, int]:
        """Another one where what is allowed may have changed."""
        access = self._client.access
        return (None if access is None else access.rules), self._index.generation

    @property
    def is_constant(self) -> bool:
        """What may be published depends on nothing but the version."""
        return not self._permissions.tracks_replies

    def may_publish(self, subject: bytes) -> bool:
        return (
            self._permissions.may_publish(subject)
            and self.unwritable(subject) is None
            and self._may_acknowledge(subject)
        )

    def unwritable(self, subject: bytes) -> str | None:
        """A stream that takes it, and that the client may not write to."""
        may_write = self._client.may_write
        return next((name for name in self._taking(subject) if not may_write(name)), None)

    def _may_acknowledge(self, subject: bytes) -> bool:
        """True for what is no acknowledgement. Of one that is, the stream is the third token."""
        if self._client.access is None or not subject.startswith(ACK_PREFIX):
            return True
        stream = subject.removeprefix(ACK_PREFIX).partition(b".")[0]
        return self._client.may_read(stream.decode(errors="surrogateescape"))

    def may_subscribe(self, subject: bytes, queue: bytes | None) -> bool:
        if not self._permissions.may_subscribe(subject, queue):
            return False
        if self._client.access is None:
            return True
        streams = self._index.overlapping(subject.decode(errors="surrogateescape"))
        return self._client.may_read_all(streams)

    def denied_deliveries(
        self, subject: bytes, queue: bytes | None
    ) -> Callable[[bytes], bool] | None:
        listed = self._permissions.denied_deliveries(subject, queue)
        if self._client.access is None:
            return listed

        def denies(each: bytes) -> bool:
            if listed is not None and listed(each):
                return True
            return not self._client.may_read_all(self._taking(each))

        return denies

    def delivered(self, reply: bytes) -> None:
        """The client may answer it, where it may answer what it gets."""
        self._permissions.delivered(reply)

    def _taking(self, subject: bytes) -> list[str]:
        if self._generation != self._index.generation or len(self._streams) > SUBJECTS_MAX:
            self._generation = self._index.generation
            self._streams.clear()
        found = self._streams.get(subject)
        if found is None:
            found = self._streams[subject] = self._index.taking(subject)
        return found


def _patterns(stream: StreamImage | None) -> set[tuple[str, str]]:
    """With each stream's name; ``subject.*`` stands for the subjects of all partitions but the first."""
    if stream is None or is_internal(stream.name):
        return set()
    config = stream.config
    patterns = set(config.subjects)
    if config.partitions > 1 and not config.is_spread:
        patterns |= {f"{subject}.*" for subject in config.subjects}
    return {(stream.name, pattern) for pattern in patterns}


def _first(pattern: str) -> str:
    return pattern.partition(".")[0]


def _never(error: Exception) -> None:
    raise error
