"""Offsets as Spark's Kafka source takes them: a word, or JSON for each stream and partition."""

import json
from typing import Any, Final

from streamlog.arrow.options.read_options import Position
from streamlog.errors import ConfigError
from streamlog.model import TopicPartition
from streamlog.wire.special_offsets import EARLIEST, LATEST

OFFSETS_FORM: Final = 'set earliest, latest or JSON such as {"orders": {"0": 42, "1": -2}}'
TIMES_FORM: Final = 'set JSON of milliseconds such as {"orders": {"0": 1700000000000}}'
ASSIGNMENT_FORM: Final = 'set JSON such as {"orders": [0, 1]}'


def parse_offsets(option: str, text: str) -> Position:
    """``earliest``, ``latest``, or ``{"stream": {"partition": offset}}``, -2 and -1 for these."""
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
    return _of_partitions(option, text, OFFSETS_FORM, EARLIEST)


def parse_times(option: str, text: str) -> dict[TopicPartition, int]:
    """``{"stream": {"partition": milliseconds}}``."""
    return _of_partitions(option, text, TIMES_FORM, 0)


def _of_partitions(option: str, text: str, form: str, least: int) -> dict[TopicPartition, int]:
    numbers: dict[TopicPartition, int] = {}
    for stream, of_stream in _json_object(option, text, form).items():
        if not isinstance(of_stream, dict):
            raise ConfigError(option, f"{stream!r} has no object of partitions", form)
        for partition, number in of_stream.items():
            if not partition.isdecimal() or not _is_integer(number) or number < least:
                problem = f"{partition!r}: {number!r} of {stream!r} is wrong"
                raise ConfigError(option, problem, form)
            numbers[TopicPartition(stream, int(partition))] = number
    return numbers


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    """``{"stream": [partition, ...]}``."""
    names: list[TopicPartition] = []
    for stream, partitions in _json_object(option, text, ASSIGNMENT_FORM).items():
        if not isinstance(partitions, list) or not all(map(_is_integer, partitions)):
            raise ConfigError(option, f"{stream!r} has no list of partitions", ASSIGNMENT_FORM)
        names += [TopicPartition(stream, partition) for partition in partitions]
    if not names:
        raise ConfigError(option, "names no partition", ASSIGNMENT_FORM)
    return tuple(names)


def _json_object(option: str, text: str, form: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise ConfigError(option, f"{text!r} is not JSON", form) from None
    if not isinstance(value, dict):
        raise ConfigError(option, f"{text!r} is not a JSON object", form)
    return value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
