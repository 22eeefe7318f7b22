"""What a format of values has to do."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Misfit(ValueError):
    """A value does not fit the schema. The text is the reason."""


Decoder = Callable[[Sequence[bytes | None]], list[dict[str, Any] | Exception]]
"""Makes a row that fits the columns of each value, or the error that says why it is none."""


def each_by(decode: Callable[[bytes], dict[str, Any]]) -> Decoder:
    """``decode`` raises Misfit, or what its library raises."""

    def decode_each(values: Sequence[bytes | None]) -> list[dict[str, Any] | Exception]:
        found: list[dict[str, Any] | Exception] = []
        for value in values:
            try:
                if value is None:
                    raise Misfit("there is no value")
                found.append(decode(value))
            except (
                Exception
            ) as error:  # libraries raise what they like at bytes that are not theirs
                found.append(error)
        return found

    return decode_each


class ValueFormat(Protocol):
    """Can be pickled."""

    @property
    def decodes_batches(self) -> bool:
        """There is a faster way; else ``decode_all`` is not asked."""

    def schema(self) -> "pa.Schema":
        """The columns."""

    def decoder(self) -> "Decoder":
        """The slower way. It is made once for many values."""

    def decode_all(self, values: "pa.Array") -> "pa.RecordBatch | None":
        """The faster way, of values none of which is null. None: there is one that does not fit, or that
        only the slower way can tell.
        """
