"""The keys to encrypted streams, for readers of their files: nodes decrypt for all other readers.

An option says where a key is, and never is one: Spark, for example, shows options in plans and logs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamlog.arrow.files.file_system import Files, read_small

if TYPE_CHECKING:
    from streamlog.log.encryption.key_ring import KeyRing
    from streamlog.log.encryption.opener import SegmentOpener

OPTION: Final = "encryption_keys"


@dataclass(frozen=True)
class KeySources:
    """Names of keys, and where each is. Can be pickled: the keys are read where they are used."""

    sources: tuple[tuple[str, str], ...] = ()
    option: str = OPTION
    """What the caller calls them."""

    @classmethod
    def of(cls, texts: Iterable[str], option: str = OPTION) -> "KeySources":
        """Each is ``NAME=SOURCE``. Raises ConfigError."""
        from streamlog.log.encryption.key_source import parsed_sources

        return cls(tuple(parsed_sources(list(texts), option).items()), option)


class Openers:
    """Opens segments by keys that are read once, when the first of them is needed.

    Stays in its process: it holds keys.
    """

    def __init__(self, sources: KeySources) -> None:
        self._sources = sources
        self._ring: KeyRing | None = None

    def of(self, files: Files, path: str) -> "SegmentOpener":
        """Of the segment whose batches are in the file at ``path``. Raises ConfigError for a key
        that cannot be had here.
        """
        from streamlog.log.encryption.key_source import key_ring
        from streamlog.log.encryption.opener import SegmentOpener

        if self._ring is None:
            self._ring = key_ring(dict(self._sources.sources), None)
        remedy = (
            f"set the option {self._sources.option} to NAME=SOURCE, where SOURCE is known on every"
            " machine"
        )
        return SegmentOpener(path, self._ring, lambda name: read_small(files, name), remedy=remedy)
