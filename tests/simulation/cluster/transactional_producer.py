"""Kafka's transactional producer, in both of its forms: before version 2 of transactions it adds partitions by itself,
and its epoch stays; with version 2 (KIP-890) each end of a transaction gives it the next epoch.

``History`` hears what it writes and how it wants each transaction to end, before the nodes do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from streamlog.errors import StreamlogError
from streamlog.model import TopicPartition
from streamlog.record.batch import TRANSACTIONAL
from streamlog.record.codec import RecordRun
from streamlog.wire import registry
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.produce import ACKS_ALL
from tests.simulation.cluster.kafka_client import (
    COORDINATOR_MOVES,
    GROUP,
    TRANSACTION,
    KafkaClient,
    Refused,
    Unanswered,
    check,
)

NO_PRODUCER: Final = (-1, -1)
PRODUCE_TIMEOUT_MS: Final = 1_500
BEFORE_2: Final = {
    registry.PRODUCE: 11,
    registry.END_TXN: 4,
    registry.TXN_OFFSET_COMMIT: 4,
}
SINCE_2: Final = {
    registry.PRODUCE: 12,
    registry.END_TXN: 5,
    registry.TXN_OFFSET_COMMIT: 5,
}
FENCED: Final = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
    }
)
ANOTHER_LEADER: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
    }
)
"""The batch is to be sent again."""
AGAIN: Final = COORDINATOR_MOVES | {ErrorCode.concurrent_transactions}


class ProducerFenced(StreamlogError):
    """Another producer has the transactional id now."""


class MustAbort(StreamlogError):
    """The transaction cannot be committed."""


class History(Protocol):
    """Of all transactions."""

    def begins(self, name: str, number: int) -> None: ...
    def writes(self, name: str, number: int, tp: TopicPartition, values: Sequence[str]) -> None: ...
    def wrote(self, name: str, number: int, tp: TopicPartition, values: Sequence[str]) -> None: ...
    def ends(self, name: str, number: int, *, commit: bool) -> None: ...
    def ended(self, name: str, number: int, *, commit: bool) -> None: ...


class TransactionalProducer:
    """One life of the producer of a transactional id."""

    def __init__(
        self,
        client: KafkaClient,
        name: str,
        history: History,
        numbers: "Numbers",
        *,
        version: int,
        timeout_ms: int,
    ) -> None:
        """``numbers``: no two transactions of the id have one number, whichever producer had them."""
        self.name = name
        self.number = 0
        """Of the transaction."""
        self._client = client
        self._history = history
        self._numbers = numbers
        self._has_version_2 = version >= 2
        self._apis = SINCE_2 if self._has_version_2 else BEFORE_2
        self._timeout_ms = timeout_ms
        self._id, self._epoch = NO_PRODUCER
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._is_empty = True
        self._is_in_doubt = False
        """Something that was sent may come yet."""

    async def init(self) -> None:
        """Raises ProducerFenced."""
        while True:
            asked = {
                "transactional_id": self.name,
                "transaction_timeout": self._timeout_ms,
                "producer_id": self._id,
                "producer_epoch": self._epoch,
            }
            answer = await self._coordinator(registry.INIT_PRODUCER_ID, 5, asked)
            self._look_for_fence(answer["error_code"])
            if not answer["error_code"]:
                break
            check(answer["error_code"], f"InitProducerId of {self.name}")
        self._take(answer)
        self._is_in_doubt = False

    def begin(self) -> None:
        self.number = self._numbers.next_of(self.name)
        self._added, self._groups, self._is_empty = set(), set(), True
        self._history.begins(self.name, self.number)

    async def send(self, tp: TopicPartition, values: Sequence[str]) -> None:
        """Raises ProducerFenced, MustAbort."""
        if not self._has_version_2 and tp not in self._added:
            await self._add(tp)
        self._is_empty = False
        self._history.writes(self.name, self.number, tp, values)
        sequence = self._sequences.get(tp, 0)
        run = RecordRun(attributes=TRANSACTIONAL)
        for value in values:
            run.append(None, value.encode())
        batch = run.seal(
            base_offset=0,
            leader_epoch=-1,
            timestamp_ms=1_700_000_000_000,
            max_timestamp_ms=1_700_000_000_000,
            producer=(self._id, self._epoch, sequence),
        )
        self._is_in_doubt = True
        await self._deliver(tp, batch)
        self._is_in_doubt = False
        self._sequences[tp] = sequence + len(values)
        self._history.wrote(self.name, self.number, tp, values)

    async def _deliver(self, tp: TopicPartition, batch: bytes) -> None:
        client = self._client
        asked = {
            "transactional_id": self.name,
            "acks": ACKS_ALL,
            "timeout": PRODUCE_TIMEOUT_MS,
            "topic_data": [
                {
                    "name": tp.stream,
                    "partition_data": [{"index": tp.partition, "records": batch}],
                }
            ],
        }
        while True:
            try:
                node_id = await client.leader(tp)
                version = self._apis[registry.PRODUCE]
                answer = await client.ask(node_id, registry.PRODUCE, version, asked)
                code = answer["responses"][0]["partition_responses"][0]["error_code"]
            except Unanswered:
                code = ErrorCode.request_timed_out
            except Refused as refused:
                code = refused.error
            if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
                return
            if code not in ANOTHER_LEADER:
                raise MustAbort(f"{tp}: {ErrorCode(code).name}")
            client.forget_leader(tp)
            await client.pause()

    async def send_offset(self, group: str, tp: TopicPartition, offset: int) -> None:
        """The group has everything below. Raises ProducerFenced, MustAbort."""
        producer = {
            "transactional_id": self.name,
            "producer_id": self._id,
            "producer_epoch": self._epoch,
        }
        if not self._has_version_2 and group not in self._groups:
            asked = {**producer, "group_id": group}
            self._check(
                (await self._coordinator(registry.ADD_OFFSETS_TO_TXN, 3, asked))["error_code"]
            )
            self._groups.add(group)
        self._is_empty = False
        asked = {
            **producer,
            "group_id": group,
            "topics": [
                {
                    "name": tp.stream,
                    "partitions": [
                        {
                            "partition_index": tp.partition,
                            "committed_offset": offset,
                            "committed_metadata": None,
                        }
                    ],
                }
            ],
        }
        version = self._apis[registry.TXN_OFFSET_COMMIT]
        while True:
            try:
                answer = await self._client.ask_coordinator(
                    GROUP, group, registry.TXN_OFFSET_COMMIT, version, asked
                )
                code = answer["topics"][0]["partitions"][0]["error_code"]
            except Unanswered:
                code = ErrorCode.coordinator_not_available
            except Refused as refused:
                code = refused.error
            if code not in AGAIN | ANOTHER_LEADER:
                break
            self._client.forget_coordinator(GROUP, group)
            await self._client.pause()
        self._check(code)

    async def end(self, *, commit: bool) -> bool:
        """Whether it is committed: one that cannot be is aborted. Raises ProducerFenced, where that is not known."""
        if self._is_empty:
            self._history.ends(self.name, self.number, commit=False)
            return False
        self._history.ends(self.name, self.number, commit=commit)
        asked = {
            "transactional_id": self.name,
            "producer_id": self._id,
            "producer_epoch": self._epoch,
            "committed": commit,
        }
        version = self._apis[registry.END_TXN]
        answer = await self._coordinator(registry.END_TXN, version, asked)
        code = answer["error_code"]
        self._look_for_fence(code)
        if code in (ErrorCode.invalid_txn_state, ErrorCode.transaction_abortable):
            if commit:
                raise MustAbort(f"EndTxn of {self.name}: {ErrorCode(code).name}")
            await self.init()  # nothing is open any more
            return False
        check(code, f"EndTxn of {self.name}")
        self._history.ended(self.name, self.number, commit=commit)
        if self._has_version_2:
            self._take(answer)
        return commit

    async def abort(self) -> None:
        """And go on so that nothing of it comes late. Raises ProducerFenced."""
        await self.end(commit=False)
        if not self._has_version_2 and self._is_in_doubt:
            await self.init()

    # Parts

    async def _add(self, tp: TopicPartition) -> None:
        asked = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self._id,
            "v3_and_below_producer_epoch": self._epoch,
            "v3_and_below_topics": [{"name": tp.stream, "partitions": [tp.partition]}],
        }
        while True:
            answer = await self._coordinator(registry.ADD_PARTITIONS_TO_TXN, 3, asked, _code_of_add)
            code = _code_of_add(answer)
            if code != ErrorCode.unknown_topic_or_partition:
                break
            await self._client.pause()
        self._check(code)
        self._is_empty = False
        self._added.add(tp)

    async def _coordinator(
        self,
        api: int,
        version: int,
        asked: Mapping[str, Any],
        code_of: "CodeOf" = lambda answer: int(answer["error_code"]),
    ) -> dict[str, Any]:
        """Its answer, for which it is asked until it is the coordinator, and has the time."""
        client = self._client
        while True:
            try:
                answer = await client.ask_coordinator(TRANSACTION, self.name, api, version, asked)
            except (Unanswered, Refused):
                await client.pause()
                continue
            code = code_of(answer)
            if code not in AGAIN:
                return answer
            if code in COORDINATOR_MOVES:
                client.forget_coordinator(TRANSACTION, self.name)
            await client.pause()

    def _check(self, code: int) -> None:
        self._look_for_fence(code)
        if code:
            raise MustAbort(f"{self.name}: {ErrorCode(code).name}")

    def _look_for_fence(self, code: int) -> None:
        if code in FENCED:
            raise ProducerFenced(f"{self.name}: {ErrorCode(code).name}")

    def _take(self, answer: Mapping[str, Any]) -> None:
        given = answer["producer_id"], answer["producer_epoch"]
        if given != (self._id, self._epoch):
            self._id, self._epoch = given
            self._sequences = {}


class CodeOf(Protocol):
    """The error in an answer."""

    def __call__(self, answer: Mapping[str, Any], /) -> int: ...


def _code_of_add(answer: Mapping[str, Any]) -> int:
    (topic,) = answer["results_by_topic_v3_and_below"]
    return int(topic["results_by_partition"][0]["partition_error_code"])


class Numbers:
    """Of transactions, by transactional id."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def next_of(self, name: str) -> int:
        number = self._last[name] = self._last.get(name, -1) + 1
        return number
