"""What a partition of ``__consumer_state`` holds: consumers that outlive their coordinator. Pure.

===================  ==============================  =================================================
record               key                             value
===================  ==============================  =================================================
consumer             ``c`` stream NUL consumer       JSON: configuration, the stream's id, when it was made
state                ``s`` stream NUL consumer       when its consumer was made (8 bytes), ``Delivery.encode``
given up             ``g`` stream NUL consumer       JSON: when its consumer was made, the messages by partition
epochs               ``e`` stream NUL consumer       JSON: when its consumer was made, leader epochs by partition
===================  ==============================  =================================================

Messages that were given up are kept where acknowledgements remove messages, see ``interest``. The leader epochs are
those in which the messages were written that the consumer has read, see ``stream_source``; the record comes in the
batch of the state that it belongs to. A node that does not know a kind of records passes over them.

The stream is compacted: the last record of a key holds, and a null value ends it. A state counts with the consumer of
its time alone, so that one that is made again under the same name begins at the start, whatever was written last.
"""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypeVar
from uuid import UUID

from streamlog.errors import CorruptData
from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from streamlog.jetstream.consumers.interest import offsets_of, text_of
from streamlog.jetstream.errors import ApiRefused
from streamlog.jetstream.requests.schema import WrongType
from streamlog.log.leader_epochs import EpochStart
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records
from streamlog.record.offset_set import OffsetSet

_T = TypeVar("_T")
_CONSUMER: Final = b"c"
_STATE: Final = b"s"
_GIVEN_UP: Final = b"g"
_EPOCHS: Final = b"e"
_CREATED: Final = struct.Struct(">q")
DELIVERS: Final = b'"deliver_subject"'
"""In the record of a consumer that delivers unasked."""


class ConsumerKey(NamedTuple):
    """A consumer of a stream, by name."""

    stream: str
    consumer: str


class KeptConsumer(NamedTuple):
    """A consumer as it is kept."""

    config: ConsumerConfig
    stream_id: UUID
    created_ms: int
    paused_until_ms: int | None = None
    resume_at: Mapping[int, int] = {}
    """Of ``last_per_subject``: by partition, where it reads on after the last message of each subject."""
    begins: Mapping[int, int] = {}
    """Of a work queue whose filters were changed: see ``Interest.begin``."""
    carried: Mapping[int, OffsetSet] = {}
    """See ``Interest.carried``."""

    def below(self, number: int, end: int) -> Self:
        """What is left of it where a partition has other messages from ``end`` on than it was made by."""
        return self._replace(
            resume_at=_at_most(self.resume_at, number, end),
            begins=_at_most(self.begins, number, end),
            carried={
                it: offsets.between(0, end) if it == number else offsets
                for it, offsets in self.carried.items()
            },
        )


def _at_most(offsets: Mapping[int, int], number: int, end: int) -> Mapping[int, int]:
    return {it: min(offset, end) if it == number else offset for it, offset in offsets.items()}


def consumer_record(key: ConsumerKey, kept: KeptConsumer | None) -> tuple[bytes, bytes | None]:
    """``kept`` None: there is no such consumer any more."""
    if kept is None:
        return _key(_CONSUMER, key), None
    fields = {
        "config": kept.config.json(),
        "stream_id": str(kept.stream_id),
        "created_ms": kept.created_ms,
        "paused_until_ms": kept.paused_until_ms,
        "resume_at": sorted(kept.resume_at.items()),
    }
    if kept.begins:
        fields["begins"] = sorted(kept.begins.items())
        fields["carried"] = _told(kept.carried)
    return _key(_CONSUMER, key), json.dumps(fields, separators=(",", ":")).encode()


def state_record(
    key: ConsumerKey, created_ms: int, state: bytes | None
) -> tuple[bytes, bytes | None]:
    """``state`` None: it is forgotten."""
    return _key(_STATE, key), None if state is None else _CREATED.pack(created_ms) + state


def given_up_record(
    key: ConsumerKey, created_ms: int, given_up: Mapping[int, OffsetSet] | None
) -> tuple[bytes, bytes | None]:
    """``given_up`` None: it is forgotten."""
    if given_up is None:
        return _key(_GIVEN_UP, key), None
    fields = {"created_ms": created_ms, "offsets": _told(given_up)}
    return _key(_GIVEN_UP, key), json.dumps(fields, separators=(",", ":")).encode()


def epochs_record(
    key: ConsumerKey, created_ms: int, epochs: Mapping[int, Sequence[EpochStart]] | None
) -> tuple[bytes, bytes | None]:
    """``epochs`` None: they are forgotten."""
    if epochs is None:
        return _key(_EPOCHS, key), None
    fields = {"created_ms": created_ms, "epochs": sorted(epochs.items())}
    return _key(_EPOCHS, key), json.dumps(fields, separators=(",", ":")).encode()


def epochs_of(told: Iterable[Any]) -> list[EpochStart]:
    """As a record, or another node, has them. Raises TypeError, ValueError for what is none."""
    epochs = list[EpochStart]()
    for epoch, start_offset in told:
        it = EpochStart(_checked(epoch, int), _checked(start_offset, int))
        if epochs and not (epochs[-1].epoch < it.epoch and epochs[-1].start_offset < start_offset):
            raise ValueError("leader epochs are out of order")
        epochs.append(it)
    return epochs


def _told(offsets: Mapping[int, OffsetSet]) -> list[tuple[int, str]]:
    return [(number, text_of(it)) for number, it in sorted(offsets.items())]


def _offsets(fields: Any) -> dict[int, OffsetSet]:
    return {_checked(number, int): offsets_of(text) for number, text in fields}


class KeptConsumers:
    """``feed`` the log, batch by batch. May be used in any one thread.

    What a record says is decoded when it is asked for: most consumers rest when another node comes to coordinate them,
    and those that do not wait for the log to be read.
    """

    def __init__(self) -> None:
        self.next_offset = 0
        """All below has been read."""
        self._consumers: dict[ConsumerKey, KeptConsumer | bytes] = {}
        """Decoded, or as they are written."""
        self._states: dict[ConsumerKey, bytes] = {}
        self._given_up: dict[ConsumerKey, bytes] = {}
        self._epochs: dict[ConsumerKey, bytes] = {}
        self._of_kind: dict[bytes, dict[ConsumerKey, Any]] = {
            _CONSUMER: self._consumers,
            _STATE: self._states,
            _GIVEN_UP: self._given_up,
            _EPOCHS: self._epochs,
        }

    def __len__(self) -> int:
        return len(self._consumers)

    def __contains__(self, key: ConsumerKey) -> bool:
        return key in self._consumers

    def feed(self, data: bytes | memoryview) -> None:
        """Whole batches, back to back. Raises CorruptBatch, CorruptData."""
        for header, batch in batches(data):
            if not header.is_control:
                for record in iter_records(batch):
                    if record.offset >= self.next_offset and record.key is not None:
                        self.take(record.key, record.value)
            self.next_offset = max(self.next_offset, header.next_offset)

    def take(self, key_bytes: bytes, value: bytes | None) -> None:
        """Raises CorruptData for a key that is none."""
        key, records = _read_key(key_bytes), self._of_kind.get(key_bytes[:1])
        if records is None:
            return
        if value is None:
            records.pop(key, None)
        else:
            records[key] = value

    def put(self, key: ConsumerKey, kept: KeptConsumer) -> None:
        """In the place of its record."""
        self._consumers[key] = kept

    def drop(self, key: ConsumerKey) -> None:
        """It is there no more."""
        for records in self._of_kind.values():
            records.pop(key, None)

    @property
    def streams(self) -> set[str]:
        """Those that have consumers."""
        return {it.stream for it in self._consumers}

    def in_order(self) -> list[ConsumerKey]:
        """All consumers: those that deliver unasked come first."""
        return sorted(self._consumers, key=self._is_pulled)

    def _is_pulled(self, key: ConsumerKey) -> bool:
        it = self._consumers[key]
        return DELIVERS not in it if isinstance(it, bytes) else not it.config.is_push

    def consumer(self, key: ConsumerKey) -> KeptConsumer:
        """One that is there. Raises CorruptData."""
        it = self._consumers[key]
        if isinstance(it, bytes):
            it = self._consumers[key] = _read_consumer(it)
        return it

    # Of a consumer that is there; each raises CorruptData

    def epochs_of(self, key: ConsumerKey) -> dict[int, list[EpochStart]]:
        """In which leader epochs the messages were written that it has read, by partition."""
        if key not in self._epochs:
            return {}
        created_ms, epochs = _read_epochs(self._epochs[key])
        return epochs if created_ms == self.consumer(key).created_ms else {}

    def given_up_of(self, key: ConsumerKey) -> dict[int, OffsetSet]:
        """What it has given up, by partition."""
        if key not in self._given_up:
            return {}
        created_ms, given_up = _read_given_up(self._given_up[key])
        return given_up if created_ms == self.consumer(key).created_ms else {}

    def state_of(self, key: ConsumerKey) -> bytes | None:
        """None: it has delivered nothing yet."""
        value = self._states.get(key)
        if value is None:
            return None
        if len(value) < _CREATED.size:
            raise CorruptData("a state of a consumer is cut")
        created_ms = int(_CREATED.unpack_from(value)[0])
        return value[_CREATED.size :] if created_ms == self.consumer(key).created_ms else None


def _key(kind: bytes, key: ConsumerKey) -> bytes:
    return kind + key.stream.encode() + b"\0" + key.consumer.encode()


def _read_key(data: bytes) -> ConsumerKey:
    stream, _, consumer = data[1:].partition(b"\0")
    try:
        return ConsumerKey(stream.decode(), consumer.decode())
    except UnicodeDecodeError:
        raise CorruptData("a consumer's key is no UTF-8") from None


def _read_consumer(value: bytes) -> KeptConsumer:
    try:
        fields: dict[str, Any] = json.loads(value)
        paused_until_ms = fields["paused_until_ms"]
        return KeptConsumer(
            ConsumerConfig.of_json(fields["config"]),
            UUID(_checked(fields["stream_id"], str)),
            _checked(fields["created_ms"], int),
            None if paused_until_ms is None else _checked(paused_until_ms, int),
            {
                _checked(number, int): _checked(offset, int)
                for number, offset in fields["resume_at"]
            },
            {
                _checked(number, int): _checked(offset, int)
                for number, offset in fields.get("begins", ())
            },
            _offsets(fields.get("carried", ())),
        )
    except (ValueError, KeyError, TypeError, RecursionError, ApiRefused, WrongType) as error:
        raise CorruptData(f"a consumer does not decode: {error}") from None


def _read_given_up(value: bytes) -> tuple[int, dict[int, OffsetSet]]:
    try:
        fields: dict[str, Any] = json.loads(value)
        return _checked(fields["created_ms"], int), _offsets(fields["offsets"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(f"what a consumer has given up does not decode: {error}") from None


def _read_epochs(value: bytes) -> tuple[int, dict[int, list[EpochStart]]]:
    try:
        fields: dict[str, Any] = json.loads(value)
        found = {_checked(number, int): epochs_of(it) for number, it in fields["epochs"]}
        return _checked(fields["created_ms"], int), found
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(f"leader epochs of a consumer do not decode: {error}") from None


def _checked(value: Any, kind: type[_T]) -> _T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
