"""What a format of values has to do."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Misfit(ValueError):
    """A value does not fit the schema. The text is the reason."""


class ValueFormat(Protocol):
    """Can be pickled."""

    @property
    def decodes_batches(self) -> bool:
        """There is a faster way; else ``decode_all`` is not asked."""

    def schema(self) -> "pa.Schema":
        """The columns."""

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        """A function that raises Misfit, or what its library raises; else what it returns fits the columns."""

    def decode_all(self, values: "pa.Array") -> "pa.RecordBatch | None":
        """The faster way, of values none of which is null. None: there is one that does not fit, or that
        only the slower way can tell.
        """
