"""Values of JSON, by a JSON Schema; ``streamlog.record.schema.json_schema`` says what is checked."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from streamlog.errors import ConfigError
from streamlog.lake.columns.value_format import Decoder, Misfit, each_by
from streamlog.record.schema.json_schema import NO_RULES, JsonField, json_schema

if TYPE_CHECKING:
    import pyarrow as pa

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "date-time": (str,),
    "date": (str,),
    "integer": (int,),
    "number": (float, int),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_USUAL: Final[Mapping[str, tuple[Callable[[str], object], Callable[[str], object]]]] = {
    "date-time": (
        re.compile(
            r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z"
        ).fullmatch,
        datetime.fromisoformat,
    ),
    "date": (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}").fullmatch, date.fromisoformat),
}
"""Times as most write them, which Python parses like Arrow, in a tenth of the time. Others are left to Arrow."""

_DAYS: Final = (
    date.min.toordinal() - date(1970, 1, 1).toordinal(),
    date.max.toordinal() - date(1970, 1, 1).toordinal(),
)
_DAY_US: Final = 86_400_000_000
_USUAL_YEARS: Final[Mapping[str, tuple[int, int]]] = {
    "date": _DAYS,
    "date-time": (_DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1),
}
"""The first and the last day, or microsecond, of those that Python has, since 1970."""


@dataclass(frozen=True)
class JsonValues:
    """Properties that the schema does not have are left out, unless it forbids them."""

    whole: JsonField
    decodes_batches: Literal[True] = True

    @classmethod
    def parse(cls, data: bytes) -> "JsonValues":
        """Raises ConfigError."""
        try:
            found = cls(json_schema(data))
        except ValueError as error:
            raise ConfigError("--schema", str(error), "correct the JSON Schema") from None
        _check_patterns(found.whole)
        return found

    @property
    def fields(self) -> tuple[JsonField, ...]:
        return self.whole.inner

    def schema(self) -> "pa.Schema":
        import pyarrow as pa

        return pa.schema([pa.field(it.name, _arrow(it)) for it in self.fields])

    def decoder(self) -> Decoder:
        import orjson

        patterns = _PatternChecks()
        row_of = _object(self.whole, "", patterns)

        def decode(data: bytes) -> dict[str, Any]:
            patterns.row += 1
            value = orjson.loads(data)
            if not isinstance(value, dict):
                raise Misfit("it is no object")
            return row_of(value)

        decode_each = each_by(decode)

        def decode_and_match(values: Sequence[bytes | None]) -> list[dict[str, Any] | Exception]:
            patterns.begin([index for index, value in enumerate(values) if value is not None])
            found = decode_each(values)
            for index, misfit in patterns.misfits():
                if isinstance(found[index], dict):
                    found[index] = misfit
            return found

        return decode_and_match

    def decode_all(self, values: "pa.Array") -> "pa.RecordBatch | None":
        """Arrow's reader takes lines. A value of one line that begins and ends like an object, and is read without an
        error, is one row at least; so as many rows as values are one of each.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.json as pj

        if not len(values):
            return None
        whole = pc.and_(pc.starts_with(values, pattern=b"{"), pc.ends_with(values, pattern=b"}"))
        if not pc.all(whole).as_py():
            return None
        lines = pc.binary_join(
            pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), b"\n"
        )[0].as_buffer()
        data = lines.to_pybytes()
        if data.count(b"\n") != len(values) - 1 or b"NaN" in data or b"Infinity" in data:
            return None  # Arrow's reader takes these for numbers
        raw = pa.schema([pa.field(it.name, _arrow(it, raw=True)) for it in self.fields])
        unexpected = _unexpected(self.whole)
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=raw, unexpected_field_behavior=unexpected
                ),
            )
            if table.num_rows != len(values):
                return None
            table.validate(full=True)
            if unexpected == "infer":
                if not _is_as_closed_as(self.whole, table.schema):
                    return None
                table = table.select(raw.names).cast(raw)
            table = table.select(raw.names).combine_chunks()
            if any(not _obeys(it, table.column(it.name).combine_chunks()) for it in self.fields):
                return None
            table = table.cast(self.schema())
            if any(
                not _has_usual_years(it, table.column(it.name).combine_chunks())
                for it in self.fields
            ):
                return None
        except (pa.ArrowException, ValueError, KeyError):
            return None
        batches = table.combine_chunks().to_batches()
        return batches[0] if len(batches) == 1 else None


def _check_patterns(field: JsonField) -> None:
    """Raises ConfigError for one that Arrow cannot look for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for it in _all_in(field):
        if it.rules.pattern is not None:
            try:
                pc.match_substring_regex(pa.array([""]), pattern=it.rules.pattern)
            except pa.ArrowInvalid as error:
                problem = f"the pattern of {it.name} is none of RE2 ({str(error)[:80]})"
                raise ConfigError("--schema", problem, "write another") from None


def _all_in(field: JsonField) -> Iterator[JsonField]:
    yield field
    for it in field.inner:
        yield from _all_in(it)


def _arrow(it: JsonField, *, raw: bool = False) -> "pa.DataType":
    """``raw``: as Arrow's reader is to read it; times are texts then, and are parsed in the same way everywhere."""
    import pyarrow as pa

    match it.kind:
        case "string":
            return pa.string()
        case "date-time":
            return pa.string() if raw else pa.timestamp("us", "UTC")
        case "date":
            return pa.string() if raw else pa.date32()
        case "integer":
            return pa.int64()
        case "number":
            return pa.float64()
        case "boolean":
            return pa.bool_()
        case "array":
            return pa.list_(pa.field("element", _arrow(it.inner[0], raw=raw)))
    return pa.struct([pa.field(inner.name, _arrow(inner, raw=raw)) for inner in it.inner])


class _PatternChecks:
    """The patterns of many values, each looked for in all texts at once: Arrow takes longer to begin than to look."""

    def __init__(self) -> None:
        self.row = -1
        """Which of the values is being decoded."""
        self._rows: Sequence[int] = ()
        self._waiting: dict[tuple[str, str], tuple[list[int], list[str]]] = {}

    def begin(self, rows: Sequence[int]) -> None:
        """``rows``: the positions of the values that are to be decoded."""
        self.row = -1
        self._rows = rows
        self._waiting.clear()

    def add(self, path: str, pattern: str, text: str) -> None:
        rows, texts = self._waiting.setdefault((path, pattern), ([], []))
        rows.append(self.row)
        texts.append(text)

    def misfits(self) -> Iterator[tuple[int, Misfit]]:
        """With the positions of their values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for (path, pattern), (rows, texts) in self._waiting.items():
            found = pc.match_substring_regex(pa.array(texts, pa.string()), pattern=pattern)
            for row, text, is_match in zip(rows, texts, found.to_pylist(), strict=True):
                if not is_match:
                    told = f"{path} does not match {pattern[:60]!r}: {text[:60]!r}"
                    yield self._rows[row], Misfit(told)


def _object(
    whole: JsonField, path: str, patterns: _PatternChecks
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function that makes a row of an object, or raises Misfit. All that the schema says is looked up here, once:
    the function runs for each record.
    """
    known = {it.name for it in whole.inner}
    is_closed = whole.is_closed
    fields = [
        (it.name, f"{path}{it.name} is missing" if it.is_required else None,
         _value(it, f"{path}{it.name}", patterns))
        for it in whole.inner
    ]  # fmt: skip

    def row_of(value: Mapping[str, Any]) -> dict[str, Any]:
        if is_closed and not value.keys() <= known:
            raise Misfit(f"{path}{min(value.keys() - known)[:60]} is none of its properties")
        row = {}
        for name, missing, convert in fields:
            found = value.get(name)
            if found is not None:
                row[name] = convert(found)
            elif missing is None:
                row[name] = None
            else:
                raise Misfit(missing)
        return row

    return row_of


def _value(it: JsonField, path: str, patterns: _PatternChecks) -> Callable[[Any], Any]:
    """A function that makes a column's value of one of JSON that is not null, or raises Misfit."""
    types = _TYPES[it.kind]
    is_integer = it.kind == "integer"
    has_rules = it.rules != NO_RULES
    finish = _finish(it, path, patterns)

    def convert(value: Any) -> Any:
        if type(value) not in types:
            raise Misfit(f"{path} is no {it.kind}: {json.dumps(value)[:60]}")
        if is_integer and not INTEGER_MIN <= value <= INTEGER_MAX:
            raise Misfit(f"{path} takes more than 64 bits")
        if has_rules:
            _check_rules(it, value, path, patterns)
        return value if finish is None else finish(value)

    return convert


def _finish(it: JsonField, path: str, patterns: _PatternChecks) -> Callable[[Any], Any] | None:
    """What is left to do when type and rules are checked; None: nothing."""
    match it.kind:
        case "number":
            return float
        case "array":
            item = _value(it.inner[0], f"{path}[]", patterns)
            return lambda value: [None if each is None else item(each) for each in value]
        case "object":
            return _object(it, f"{path}.", patterns)
        case "date-time" | "date":
            return _time(it, path)
    return None


def _time(it: JsonField, path: str) -> Callable[[str], Any]:
    import pyarrow as pa

    usual, parse = _USUAL[it.kind]
    kind = _arrow(it)

    def convert(text: str) -> Any:
        if usual(text) is not None:
            try:
                return parse(text)
            except ValueError:  # such as the 30th of February: Arrow says so, too
                pass
        try:
            return pa.scalar(text, pa.string()).cast(kind).as_py()
        except (pa.ArrowException, OverflowError):  # the latter beyond the years 1 to 9999
            raise Misfit(f"{path} is no {it.kind}: {text[:60]!r}") from None

    return convert


def _check_rules(it: JsonField, value: Any, path: str, patterns: _PatternChecks) -> None:
    """Raises Misfit, but for patterns."""
    if it.kind == "number":
        value = float(value)
    size = len(value) if isinstance(value, str | list) else value
    problem = it.rules.problem(value, size)
    if problem is not None:
        raise Misfit(f"{path} {problem}: {json.dumps(value)[:60]}")
    if it.rules.pattern is not None:
        patterns.add(path, it.rules.pattern, value)


def _unexpected(whole: JsonField) -> Literal["error", "ignore", "infer"]:
    """What Arrow's reader does at properties that the schema does not have. It does the same in all objects."""
    closed = {it.is_closed for it in _all_in(whole) if it.kind == "object"}
    return "infer" if len(closed) == 2 else "error" if True in closed else "ignore"


def _is_as_closed_as(whole: JsonField, kind: Any) -> bool:
    """``kind``: Arrow's type of an object, or a schema, with all properties that were found."""
    import pyarrow as pa

    fields = [
        kind.field(i) for i in range(len(kind) if isinstance(kind, pa.Schema) else kind.num_fields)
    ]
    found = {it.name: it.type for it in fields}
    if whole.is_closed and found.keys() - {it.name for it in whole.inner}:
        return False
    for it in whole.inner:
        inner, type_ = it, found[it.name]
        while inner.kind == "array":
            inner, type_ = inner.inner[0], type_.value_type
        if inner.kind == "object" and not _is_as_closed_as(inner, type_):
            return False
    return True


def _has_usual_years(it: JsonField, column: "pa.Array") -> bool:
    """Whether all times are of the years 1 to 9999. Arrow reads more, which Python does not have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match it.kind:
        case "date-time" | "date":
            numbers = column.cast(pa.int64() if it.kind == "date-time" else pa.int32())
            limits = pc.min_max(numbers)
            least, most = limits["min"].as_py(), limits["max"].as_py()
            first, last = _USUAL_YEARS[it.kind]
            return least is None or (first <= least and most <= last)
        case "object":
            return all(_has_usual_years(each, column.field(i)) for i, each in enumerate(it.inner))
        case "array":
            return _has_usual_years(it.inner[0], column.flatten())
    return True


def _obeys(it: JsonField, column: "pa.Array") -> bool:
    """Whether all that has to be there is, and follows the rules."""
    if column.null_count:
        if it.is_required:
            return False
        column = column.drop_null()
    if len(column) and it.rules != NO_RULES and not _follows(it, column):
        return False
    if it.kind == "object":
        return all(_obeys(inner, column.field(i)) for i, inner in enumerate(it.inner))
    if it.kind == "array":
        return _obeys(it.inner[0], column.flatten())
    return True


def _follows(it: JsonField, column: "pa.Array") -> bool:
    """The rules of a column with one value or more, and without nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rules = it.rules
    size = column
    if it.kind == "array":
        size = pc.list_value_length(column)
    elif pa.types.is_string(column.type):
        size = pc.utf8_length(column)
    if (rules.low, rules.high, rules.above, rules.below) != (None,) * 4:
        limits = pc.min_max(size)
        least, most = limits["min"].as_py(), limits["max"].as_py()
        if any(
            (
                rules.low is not None and least < rules.low,
                rules.high is not None and most > rules.high,
                rules.above is not None and least <= rules.above,
                rules.below is not None and most >= rules.below,
            )
        ):
            return False
    if rules.choices is not None:
        choices = pa.array(rules.choices, column.type)
        if not pc.all(pc.is_in(column, value_set=choices)).as_py():
            return False
    if rules.pattern is not None:
        return bool(pc.all(pc.match_substring_regex(column, pattern=rules.pattern)).as_py())
    return True
