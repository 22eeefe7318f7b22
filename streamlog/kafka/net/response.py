"""The response to a request."""

from collections.abc import Sequence
from typing import NamedTuple

from streamlog.log.segment.file_slice import FileSlice


class Response(NamedTuple):
    """A whole response frame: ``pieces[i]`` goes before ``slices[i]``, the last piece after all."""

    pieces: Sequence[bytes]
    slices: Sequence[FileSlice] = ()
    throttle_ms: int = 0
    """Nothing more is read from the client for so long; it is told so in the answer."""

    is_last: bool = False
    """The connection is closed after it."""

    def close(self) -> None:
        for part in self.slices:
            part.close()
