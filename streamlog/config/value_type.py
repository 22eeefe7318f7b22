"""What the type of a field says about its values: kind, range, choices. Pure.

Documentation, annotated files and the options of the command line are made of it, so that none of
them repeats a range.
"""

from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo


class ValueType(NamedTuple):
    """Of one field."""

    kind: type
    """``tuple`` and ``dict`` for collections; ``str`` for choices."""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    """Of the value, or of each item of a list."""
    is_optional: bool = False


def value_type(field: FieldInfo) -> ValueType:
    return _value_type(field.annotation, field.metadata)


def _value_type(annotation: Any, metadata: Iterable[Any]) -> ValueType:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *more = arguments
        return _value_type(inner, [*more, *metadata])
    if origin in (Union, UnionType):
        (inner,) = (it for it in arguments if it is not NoneType)
        return _value_type(inner, metadata)._replace(is_optional=True)
    if origin is Literal:
        return ValueType(str, choices=arguments)
    if origin is tuple:
        return ValueType(tuple, choices=_value_type(arguments[0], ()).choices)
    limits = [limit for it in metadata for limit in getattr(it, "metadata", (it,))]
    low = next((it.ge for it in limits if hasattr(it, "ge")), None)
    high = next((it.le for it in limits if hasattr(it, "le")), None)
    return ValueType(origin or annotation, low, high)
