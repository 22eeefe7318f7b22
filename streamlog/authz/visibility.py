"""The image as a principal sees it: without the streams that it may not know of."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from streamlog.authz.permissions import Permissions
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage

if TYPE_CHECKING:
    from immutables import Map


class VisibleStreams(Mapping[str, StreamImage]):
    """Nothing is copied; each name is judged when it is asked for."""

    __slots__ = ("_access", "_all")

    def __init__(self, everything: Mapping[str, StreamImage], access: Permissions) -> None:
        self._all = everything
        self._access = access

    def __getitem__(self, name: str) -> StreamImage:
        if not self._access.finds(name):
            raise KeyError(name)
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._all if self._access.sees(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class VisibleNames(Mapping[bytes, str]):
    """Likewise, by the ids of the streams."""

    __slots__ = ("_access", "_all")

    def __init__(self, everything: Mapping[bytes, str], access: Permissions) -> None:
        self._all = everything
        self._access = access

    def __getitem__(self, stream_id: bytes) -> str:
        name = self._all[stream_id]
        if not self._access.finds(name):
            raise KeyError(stream_id)
        return name

    def __iter__(self) -> Iterator[bytes]:
        return (it for it, name in self._all.items() if self._access.sees(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Visibility:
    """Images as one principal sees them. The last one is kept: it is asked for again and again."""

    __slots__ = ("_access", "_image", "_visible")

    def __init__(self, access: Permissions) -> None:
        self._access = access
        self._image: MetadataImage | None = None
        self._visible: MetadataImage | None = None

    def of(self, image: MetadataImage) -> MetadataImage:
        """To be read only: nothing can be applied to it."""
        if image is not self._image or self._visible is None:
            streams, names = _both(image, self._access)
            self._image, self._visible = image, replace(image, streams=streams, names=names)
        return self._visible


def _both(
    image: MetadataImage, access: Permissions
) -> "tuple[Map[str, StreamImage], Map[bytes, str]]":
    """Readers need no more of a Map than a Mapping has."""
    streams, names = VisibleStreams(image.streams, access), VisibleNames(image.names, access)
    return cast("Map[str, StreamImage]", streams), cast("Map[bytes, str]", names)
