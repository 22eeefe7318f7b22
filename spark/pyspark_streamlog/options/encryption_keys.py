"""The keys to encrypted streams, for readers of their files: nodes decrypt for all other readers.

Spark shows options in plans and event logs, so an option says where a key is and never is one.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_streamlog.files.file_system import Files, read_small
from pyspark_streamlog.options.option_map import OptionMap

if TYPE_CHECKING:
    from streamlog.log.encryption.key_ring import KeyRing
    from streamlog.log.encryption.opener import SegmentOpener

OPTION: Final = "encryption.keys"
_REMEDY: Final = f"set the option {OPTION} to NAME=SOURCE, where SOURCE is known on every machine"


@dataclass(frozen=True)
class KeySources:
    """Names of keys, and where each is. Travels to the executors, which read the keys there."""

    sources: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, given: OptionMap) -> "KeySources":
        """``NAME=SOURCE``, by commas; by lines, if there are several lines. Raises ConfigError."""
        text = given.text(OPTION)
        if text is None:
            return cls()
        from streamlog.log.encryption.key_source import parsed_sources

        parts = re.split("\n" if "\n" in text.strip() else ",", text)
        found = parsed_sources([part for part in parts if part.strip()], OPTION)
        return cls(tuple(found.items()))


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
        return SegmentOpener(path, self._ring, lambda name: read_small(files, name), remedy=_REMEDY)
