"""STREAM.SNAPSHOT and STREAM.RESTORE at one node: the requests, and what goes on after their answers.

**A restore.** The client's chunks go to a file of this node, and are checked on their way. When the last one has come,
a stream is made that no client sees (``stream_config.RESTORING``): read-only, without limits, under its own subject.
The leader of its partition appends the messages at the offsets that they had; then come the consumers, and at last
its configuration, by which it becomes visible. So a stream that is seen is whole.

**Failures.** What goes wrong ends in the removal of the hidden stream. A node that dies leaves it behind; it removes it
when it is back, since it knows of no such restore; the controller's node does while the other one is fenced, or has
gone. A restore that is asked for meanwhile does the same at once, if the stream's restore is over. Every append names
its offset, so that one that is sent twice is appended once, whichever leader takes it.

**Bounds.** The file takes space on the node's disk, of which some must be left. A few restores and snapshots go on at
once. A client that sends nothing for ``STALL_S``, or more than ``WAITING_BYTES_MAX`` without waiting for its answers,
has its restore ended.
"""

import asyncio
import base64
import contextlib
import json
import logging
import secrets
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import nats.errors

from streamlog.authz.visibility import Metadata
from streamlog.clock import wall_ms
from streamlog.condition import FAULT, Condition
from streamlog.control.leaders.local_leader import StreamPartition
from streamlog.control.leaders.node_requests import Fields, NodeAnswer
from streamlog.control.service import ControlService
from streamlog.delivery.delivery import RESTORED_STEP_MS
from streamlog.delivery.state_encoding import DeliveredPartition, DeliveryState
from streamlog.errors import (
    CorruptData,
    InvalidStreamConfig,
    NotLeader,
    Overloaded,
    StorageFailed,
    StreamExists,
    StreamlogError,
    StreamNotFound,
)
from streamlog.jetstream.connection import Answering, Request
from streamlog.jetstream.consumers.consumer_service import ConsumerRequest, ConsumerService
from streamlog.jetstream.consumers.stream_source import StreamSource
from streamlog.jetstream.dispatcher import RequestDispatcher, has_api_level, is_empty, needed
from streamlog.jetstream.errors import (
    API_LEVEL_MISSING,
    BAD_REQUEST,
    DELIVER_SUBJECT,
    NAME_MISMATCH,
    PATH_IN_NAME,
    RESTORED_EXISTS,
    ApiRefused,
    restore_failed,
    snapshot_failed,
)
from streamlog.jetstream.replies import encoded
from streamlog.jetstream.requests import request_schemas
from streamlog.jetstream.requests.schema import TIME, Shape, WrongType, an_object
from streamlog.jetstream.snapshot.nats_snapshot import (
    ARCHIVED,
    META,
    OWN_STATE,
    STATE,
    archived_state,
    delivery_state,
)
from streamlog.jetstream.snapshot.restored_stream import (
    ReceivedSnapshot,
    RestoredConsumer,
    consumers_of,
)
from streamlog.jetstream.snapshot.stream_snapshot import (
    NO_ACK_WAIT_MS,
    SnapshotFlow,
    StreamSnapshot,
)
from streamlog.jetstream.verbs.stream_info import rfc3339
from streamlog.metadata.commands import CreateStream, DeleteStream, UpdateStream
from streamlog.metadata.image.feature_level import RESTORED_LEVEL
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.settings_translation import SETTINGS
from streamlog.metadata.stream.stream_config import RESTORING, StreamConfig
from streamlog.metadata.stream.subjects import check_form
from streamlog.model import NodeId
from streamlog.partition.partition import Partition
from streamlog.record.compression import Compression

logger = logging.getLogger(__name__)

RESTORE_NOT_REMOVED: Final = Condition(
    "SL-0528",
    "a stream that was not restored whole could not be removed",
    "see that a controller is there; the node tries again",
    meaning="A restore has failed, or its node has died. What is left of its stream is hidden.",
)

SNAPSHOT: Final = "STREAM.SNAPSHOT."
RESTORE: Final = "STREAM.RESTORE."
APPEND: Final = "RESTORE.APPEND"
"""The request of a node that restores a stream that is led elsewhere."""
IS_GOING_ON: Final = "RESTORE.GOES_ON"
SNAPSHOTS_MAX: Final = 8
RESTORES_MAX: Final = 4
STALL_S: Final = 5.0
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of chunks that have come and are not on the disk yet."""
APPEND_S: Final = 30.0
APPEND_PATIENCE_S: Final = 60.0
"""How long a restore waits while there is no leader."""
TRIM_S: Final = 30.0
SWEEP_S: Final = 5.0
ASK_S: Final = 2.0
FOLDER: Final = "restores"
"""In the node's data folder."""

_SNAPSHOT_TYPE: Final = "io.nats.jetstream.api.v1.stream_snapshot_response"
_RESTORE_TYPE: Final = "io.nats.jetstream.api.v1.stream_restore_response"
_CREATE_TYPE: Final = "io.nats.jetstream.api.v1.stream_create_response"


class _ToldState(Shape):
    """What the client says of the stream's state; the snapshot says the rest. A nats-server of 2.10 keeps purged
    messages in the files that it sends, and tells only by this where the stream begins.
    """

    def __init__(self) -> None:
        super().__init__()

    def read(self, value: Any, *, strict: bool = True) -> dict[str, Any]:
        first = value.get("first_seq") if isinstance(value, dict) else None
        return {"first_seq": first} if type(first) is int and first > 0 else {}


_RESTORE: Final = Shape(
    config=an_object(request_schemas.STREAM_CONFIG), state=an_object(_ToldState())
)

Advise = Callable[[str, str, dict[str, Any]], None]


class _Restored:
    """Of one append. An ``Acknowledgement``."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def committed(self, _: int) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, error: StreamlogError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class SnapshotService:
    """``run`` as a task, ``apply`` at each change of the image."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        data_dir: Path,
        metadata: Metadata,
        control: ControlService,
        source: StreamSource,
        consumers: ConsumerService | None,
        advise: Advise,
        may_deliver_to: Callable[[str], bool],
    ) -> None:
        """``may_deliver_to``: whether chunks may be published to a subject."""
        self._node_id = node_id
        self._folder = data_dir / FOLDER
        self._metadata = metadata
        self._control = control
        self._source = source
        self._consumers = consumers
        self._advise = advise
        self._may_deliver_to = may_deliver_to
        self._group: asyncio.TaskGroup | None = None
        self._snapshots = 0
        self._restores = set[str]()
        """Those that go on at this node."""
        self._hidden: dict[str, StreamImage] = {}
        """Streams that are being restored, wherever."""
        control.nodes.register(APPEND, self._answer_append)
        control.nodes.register(IS_GOING_ON, self._answer_goes_on)

    async def run(self) -> None:
        """Carry out what was granted, and remove what others have left, until cancelled."""
        await asyncio.to_thread(_empty_folder, self._folder)
        async with asyncio.TaskGroup() as group:
            self._group = group
            while True:
                await self._sweep()
                await asyncio.sleep(SWEEP_S)

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        for change in new.changes(old):
            known = change.new or change.old
            assert known is not None, "a change has one side at least"
            if change.new is not None and change.new.config.is_restoring:
                self._hidden[known.name] = change.new
            else:
                self._hidden.pop(known.name, None)

    async def answer(self, request: Request, verb: str, verbs: RequestDispatcher) -> bytes:
        """Both verbs; what was answered."""
        verbs.count()
        work: Callable[[], Any]
        try:
            if not has_api_level(request.headers):
                raise ApiRefused(API_LEVEL_MISSING)
            if verb.startswith(SNAPSHOT):
                kind, name = _SNAPSHOT_TYPE, verb.removeprefix(SNAPSHOT)
                reply, work = await self._grant_snapshot(request, name, verbs)
            else:
                kind, name = _RESTORE_TYPE, verb.removeprefix(RESTORE)
                reply, work = await self._grant_restore(request, name, verbs)
        except Exception as error:
            kind = _SNAPSHOT_TYPE if verb.startswith(SNAPSHOT) else _RESTORE_TYPE
            text = encoded({"type": kind, "error": verbs.failed(error, verb).json()})
            await request.connection.answer(request.reply, text)
            return text
        text = encoded({"type": kind, **reply})
        assert self._group is not None, "run has begun"
        await request.connection.answer(request.reply, text)
        self._group.create_task(_guarded(work()))
        return text

    # A snapshot

    async def _grant_snapshot(
        self, request: Request, name: str, verbs: RequestDispatcher
    ) -> tuple[dict[str, Any], Callable[[], Any]]:
        if is_empty(request.data):
            raise ApiRefused(BAD_REQUEST)
        stream = await verbs.control.streams.find(name)
        await verbs.control.messages.readable(name)
        fields = needed(request.data, request_schemas.SNAPSHOT)
        flow = SnapshotFlow.of(fields, request.connection.max_payload)
        if not self._is_deliverable(flow.deliver_subject):
            raise ApiRefused(DELIVER_SUBJECT)
        if len(stream.partitions) > 1:
            raise ApiRefused(
                snapshot_failed(
                    f"the stream has {len(stream.partitions)} partitions, and each has sequences of"
                    " its own; use `streamlog backup`"
                )
            )
        if self._snapshots >= SNAPSHOTS_MAX:
            raise Overloaded(f"{self._snapshots} snapshots go on at this node")
        self._snapshots += 1
        try:
            taken = StreamSnapshot(stream, self._source, self._consumers)
            await taken.begin(
                no_consumers=bool(fields.get("no_consumers")), checks=bool(fields.get("jsck"))
            )
            info = await verbs.streams.info(name, {})
        except BaseException:
            self._snapshots -= 1
            raise
        state = info["state"]
        taken.end_with(int(state["last_seq"]))

        async def work() -> None:
            started_ms = wall_ms()
            self._tell("snapshot_create", name, state=state)
            error = ""
            try:
                error = await taken.send(request.connection, flow)
            finally:
                self._snapshots -= 1
            times = {"start": rfc3339(started_ms), "end": rfc3339(wall_ms())}
            self._tell("snapshot_complete", name, **times, **({"error": error} if error else {}))

        # nats-server restores this form to its disk alone. What is restored here is in memory again.
        return {"config": {**info["config"], "storage": "file"}, "state": state}, work

    def _is_deliverable(self, subject: str) -> bool:
        if not subject or "*" in subject or ">" in subject:
            return False
        try:
            check_form(subject)
        except StreamlogError:
            return False
        return self._may_deliver_to(subject)

    def _tell(self, kind: str, stream: str, **fields: Any) -> None:
        self._advise(
            f"STREAM.{kind.upper()}.{stream}", kind, {"stream": stream, **fields, "client": {}}
        )

    # A restore

    async def _grant_restore(
        self, request: Request, name: str, verbs: RequestDispatcher
    ) -> tuple[dict[str, Any], Callable[[], Any]]:
        if is_empty(request.data):
            raise ApiRefused(BAD_REQUEST)
        asked = needed(request.data, _RESTORE)
        config = dict(asked.get("config", {}))
        begins_at = asked.get("state", {}).get("first_seq", 0)
        config["name"] = config.get("name") or name
        if config["name"] != name:
            raise ApiRefused(NAME_MISMATCH)
        if "/" in name or "\\" in name:
            raise ApiRefused(PATH_IN_NAME)
        is_sealed = bool(config.pop("sealed", False))
        wanted = verbs.streams.checked(config)
        if wanted.mirror:
            raise ApiRefused(
                restore_failed("a mirror is not restored: make it again, and it copies its origin")
            )
        await self._check_free(name, verbs)
        await verbs.control.streams.create(_blank(wanted, "check"), validate_only=True)
        verbs.control.streams.check_bindings(wanted)
        if len(self._restores) >= RESTORES_MAX:
            raise Overloaded(f"{len(self._restores)} restores go on at this node")
        restore_id = secrets.token_hex(11)
        subject = f"$JS.SNAPSHOT.RESTORE.{name}.{restore_id}"
        self._restores.add(restore_id)
        chunks = _Chunks(request.connection, subject)

        async def work() -> None:
            try:
                await self._restore(
                    restore_id,
                    chunks,
                    wanted,
                    verbs,
                    request.connection,
                    is_sealed=is_sealed,
                    begins_at=begins_at,
                )
            finally:
                chunks.close()
                self._restores.discard(restore_id)

        return {"deliver_subject": subject}, work

    async def _check_free(self, name: str, verbs: RequestDispatcher) -> None:
        """Raises ApiRefused for a stream that is there; removes what a restore that is over has left of it."""
        await verbs.control.streams.catch_up()
        known = self._control.image.streams.get(name)
        if known is None:
            return
        if not known.config.is_restoring or await self._goes_on(known):
            raise ApiRefused(RESTORED_EXISTS)
        await self._delete(known)

    async def _restore(
        self,
        restore_id: str,
        chunks: "_Chunks",
        wanted: StreamConfig,
        verbs: RequestDispatcher,
        connection: Answering,
        *,
        is_sealed: bool,
        begins_at: int,
    ) -> None:
        name, started_ms, outcome = wanted.name, wall_ms(), "none"
        self._tell("restore_create", name)
        received: ReceivedSnapshot | None = None
        reply = ""
        try:
            self._folder.mkdir(exist_ok=True)
            path = self._folder / restore_id
            received = await asyncio.to_thread(ReceivedSnapshot, path, name, begins_at)
            while True:
                found = await chunks.next()
                if found is None:
                    logger.info("restore ended: its client stands still", extra={"stream": name})
                    return
                reply, data = found
                if not reply:
                    raise CorruptData("each chunk needs a reply subject")
                if not data:
                    break
                await asyncio.to_thread(received.add, data)
                with contextlib.suppress(nats.errors.Error):
                    await connection.answer(reply, b"")
            chunks.close()
            await asyncio.to_thread(received.finish)
            await self._build(restore_id, received, wanted, is_sealed=is_sealed)
            told: dict[str, Any] = await verbs.streams.info(name, {})
            told = {key: told[key] for key in ("config", "created", "state", "ts", "cluster")}
        except (StreamlogError, ApiRefused, OSError) as error:
            logger.info("restore failed", extra={"stream": name, "error": str(error)})
            failed, outcome = _refusal(error), type(error).__name__
            told = {"error": failed.error.json()}
        finally:
            if received is not None:
                await asyncio.shield(asyncio.to_thread(received.remove))
        caller = verbs.caller
        self._control.audit.acted(
            caller.session,
            "streams.restore",
            [name],
            outcome,
            is_done=outcome == "none",
            by=caller.by,
        )
        self._tell(
            "restore_complete",
            name,
            start=rfc3339(started_ms),
            end=rfc3339(wall_ms()),
            bytes=received.size_bytes if received is not None else 0,
        )
        if reply:
            await connection.answer(reply, encoded({"type": _CREATE_TYPE, **told}))

    async def _build(
        self,
        restore_id: str,
        received: ReceivedSnapshot,
        wanted: StreamConfig,
        *,
        is_sealed: bool,
    ) -> None:
        """Raises StreamlogError; then nothing is left."""
        wanted = _with_own_settings(wanted, received)
        mark = f"{self._node_id} {restore_id}"
        # Before that level there are no sources, for which it counts, and nodes may be there that do not know it.
        knows_restored = self._control.image.level >= RESTORED_LEVEL
        restored_end = received.last_sequence if knows_restored else 0
        blank = CreateStream(config=_blank(wanted, mark), restored_end=restored_end)
        await self._metadata.change_stream(blank, wanted.name)
        stream = self._control.image.stream(wanted.name)
        if stream.config.metadata.get(RESTORING) != mark:
            raise StreamExists(f"stream {wanted.name!r} is there")
        try:
            await self._append_all(stream, received, wanted)
            for it in consumers_of(received.files):
                await self._restore_consumer(stream, it, received.last_sequence)
            final = wanted.changed(sealed=True) if is_sealed else wanted
            await self._metadata.change_stream(UpdateStream(config=final), wanted.name)
        except BaseException:
            await asyncio.shield(self._delete(stream))
            raise

    async def _append_all(
        self, stream: StreamImage, received: ReceivedSnapshot, wanted: StreamConfig
    ) -> None:
        batches = received.batches(
            compression=Compression.named(wanted.compression), is_keyed=wanted.is_compacted
        )
        # In a thread: the snapshot is decoded again, and its records are put together.
        while data := await asyncio.to_thread(next, batches, b""):
            await self._append(stream, data)
        first = received.first_sequence
        start = first - 1 if first else received.last_sequence
        if start > 0:
            await self._control.leaders.trim(stream, 0, start, timeout_s=TRIM_S)

    async def _append(self, stream: StreamImage, data: bytes) -> None:
        """At the leader, whichever that is by then. The same again is no harm."""
        place = StreamPartition.of(stream, 0)
        fields = {**place.fields(), "records": base64.b64encode(data).decode()}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + APPEND_PATIENCE_S
        while True:
            try:
                await self._control.leaders.at_leader(
                    place.tp,
                    APPEND,
                    fields,
                    here=lambda: self._append_here(place, data),
                    decode=lambda _: None,
                    stream_id=stream.stream_id,
                    repeatable=True,
                )
                return
            except StreamNotFound:
                raise
            except StreamlogError as error:
                if isinstance(error, StorageFailed | CorruptData) or loop.time() >= deadline:
                    raise
            await asyncio.sleep(0.2)

    async def _append_here(self, place: StreamPartition, data: bytes) -> None:
        partition: Partition = self._control.leader.led(place.tp)
        if partition.topic_id != place.stream_id.bytes or not partition.config.is_restoring:
            raise NotLeader(f"{place.tp} of another stream of that name is here")
        partition.check_min_isr()
        ack = _Restored()
        partition.restore(memoryview(data), ack)
        async with asyncio.timeout(APPEND_S):
            await ack.done

    async def _answer_append(self, fields: Fields) -> NodeAnswer:
        data = base64.b64decode(str(fields["records"]))
        await self._append_here(StreamPartition.of_fields(fields), data)
        return NodeAnswer({})

    async def _restore_consumer(
        self, stream: StreamImage, it: RestoredConsumer, last_sequence: int
    ) -> None:
        """Raises StreamlogError, ApiRefused."""
        if self._consumers is None:
            raise InvalidStreamConfig("the snapshot has consumers, and this node serves none")
        fields = _consumer_fields(it, last_sequence)
        request = ConsumerRequest("RESTORE", stream.name, stream.stream_id, it.name, fields=fields)
        await self._consumers.ask(request)

    # What is left of a restore

    async def _sweep(self) -> None:
        if not self._hidden or self._metadata.controller_id is None:
            return
        for stream in tuple(self._hidden.values()):
            node_id, restore_id = _mark_of(stream)
            if node_id == self._node_id:
                is_over = restore_id not in self._restores
            else:
                is_controller = self._metadata.controller_id == self._node_id
                is_over = is_controller and self._is_away(node_id)
            if is_over:
                await self._delete(stream)

    async def _delete(self, stream: StreamImage) -> None:
        try:
            command = DeleteStream(name=stream.name, stream_id=stream.stream_id)
            await self._metadata.change_stream(command, stream.name, deleted=stream)
        except StreamNotFound:
            pass
        except StreamlogError as error:
            extra = {"stream": stream.name, "error": str(error)}
            logger.warning(RESTORE_NOT_REMOVED, extra=extra)

    async def _goes_on(self, stream: StreamImage) -> bool:
        """Its restore. One whose node does not answer may."""
        node_id, restore_id = _mark_of(stream)
        if node_id == self._node_id:
            return restore_id in self._restores
        try:
            answer = await self._control.nodes.ask(
                node_id, IS_GOING_ON, {"restore": restore_id}, timeout_s=ASK_S
            )
            return bool(answer.fields["goes_on"])
        except (StreamlogError, KeyError):
            return not self._is_away(node_id)

    def _is_away(self, node_id: NodeId) -> bool:
        """Gone, or fenced. What it may go on to append is for a stream that is no more."""
        node = self._control.image.nodes.get(node_id)
        return node is None or node.fenced

    async def _answer_goes_on(self, fields: Fields) -> NodeAnswer:
        return NodeAnswer({"goes_on": str(fields["restore"]) in self._restores})


class _Chunks:
    """What a client sends of a snapshot, until ``close``."""

    def __init__(self, connection: Answering, subject: str) -> None:
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._waiting_bytes = 0
        self._come = asyncio.Event()
        self._end: Callable[[], None] | None = connection.hear(subject, self._taken)

    def _taken(self, _: bytes, reply: bytes, __: bytes, payload: bytes) -> None:
        self._waiting.append((reply.decode(errors="replace"), bytes(payload)))
        self._waiting_bytes += len(payload)
        self._come.set()
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self.close()

    async def next(self) -> tuple[str, bytes] | None:
        """Its reply subject, and the chunk; None: the client stands still. Raises Overloaded."""
        if not self._waiting:
            self._come.clear()
            try:
                async with asyncio.timeout(STALL_S):
                    await self._come.wait()
            except TimeoutError:
                return None
        if self._waiting_bytes > WAITING_BYTES_MAX:
            raise Overloaded("more chunks have come than were answered")
        reply, data = self._waiting.popleft()
        self._waiting_bytes -= len(data)
        return reply, data

    def close(self) -> None:
        if self._end is not None:
            end, self._end = self._end, None
            end()


def _blank(wanted: StreamConfig, mark: str) -> StreamConfig:
    """As the hidden stream is set to: nothing comes in, and nothing goes."""
    kept = "workqueue" if wanted.retention == "workqueue" else "limits"
    return wanted.changed(
        subjects=(f"_streamlog.restoring.{mark.replace(' ', '.')}",), metadata={RESTORING: mark}, readonly=True,
        sealed=False, republish="", subject_transform="", sources="", retention=kept, retention_bytes=-1,
        retention_messages=-1, retention_ms=-1, max_messages_per_subject=-1, discard="old",
        discard_new_per_subject=False, cleanup_policy="delete", allow_ttl=False, allow_rollup=False, deny_purge=False,
        deny_delete=False, subject_delete_marker_ttl_ms=-1,
    )  # fmt: skip


def _mark_of(stream: StreamImage) -> tuple[NodeId, str]:
    node, _, restore_id = stream.config.metadata[RESTORING].partition(" ")
    return NodeId(int(node) if node.isdigit() else -1), restore_id


def _with_own_settings(wanted: StreamConfig, received: ReceivedSnapshot) -> StreamConfig:
    """What JetStream has no word for is as it was. Raises CorruptData, InvalidStreamConfig."""
    files = {it.name: it.data for it in received.files if not it.consumer}
    if received.is_archive:
        return wanted
    if META not in files:
        raise CorruptData("the snapshot has no meta.inf")
    if OWN_STATE not in files:
        return wanted
    try:
        own = json.loads(files[OWN_STATE])
        ours = [row.name for row in SETTINGS if row.jetstream is None or row.name == "storage"]
        names = [name for name in ours if name in own]
        changes = {name: own[name] for name in names}
    except (ValueError, TypeError, RecursionError):
        raise CorruptData("the snapshot's settings do not decode") from None
    changes["partitions"] = 1
    return wanted.changed(**changes)


def _consumer_fields(it: RestoredConsumer, last_sequence: int) -> dict[str, Any]:
    """Raises CorruptData."""
    try:
        if ARCHIVED in it.files:
            return _archived_fields(it, last_sequence)
        meta = json.loads(it.files[META])
        created, name = meta.pop("Created", None), meta.pop("Name", it.name)
        config = request_schemas.CONSUMER_CONFIG.read(meta, strict=False)
        config["name"] = config.get("name") or name
        own = json.loads(it.files[OWN_STATE]) if OWN_STATE in it.files else {}
        if own:
            fields = {key: own[key] for key in ("created_ms", "record", "given_up", "state")}
            base64.b64decode(fields["state"], validate=True)
            return {"config": config, **fields}
        wait_ms = (config.get("ack_wait") or 0) // 1_000_000 or NO_ACK_WAIT_MS
        state = None
        if STATE in it.files:
            state = delivery_state(
                it.files[STATE], now_ms=wall_ms(), wait_ms=wait_ms, step_ms=RESTORED_STEP_MS
            )
        created_ms = TIME.read(created) if created else wall_ms()
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError, WrongType) as error:
        raise CorruptData(f"consumer {it.name[:60]!r} of the snapshot: {error!r}") from None
    return _told(config, created_ms, state, last_sequence)


def _archived_fields(it: RestoredConsumer, last_sequence: int) -> dict[str, Any]:
    """Raises CorruptData; KeyError, TypeError, ValueError, AttributeError, WrongType."""
    entry = json.loads(it.files[ARCHIVED])
    config = request_schemas.CONSUMER_CONFIG.read(entry["config"], strict=False)
    config["name"] = config.get("name") or it.name
    wait_ms = (config.get("ack_wait") or 0) // 1_000_000 or NO_ACK_WAIT_MS
    state = archived_state(
        entry["state"], now_ms=wall_ms(), wait_ms=wait_ms, step_ms=RESTORED_STEP_MS
    )
    return _told(config, wall_ms(), state, last_sequence)


def _told(
    config: dict[str, Any], created_ms: int, state: DeliveryState | None, last_sequence: int
) -> dict[str, Any]:
    if state is not None and state.partitions[0].delivered_end > last_sequence:
        state = _cut(state, last_sequence)
    encoded_state = "" if state is None else base64.b64encode(state.encode()).decode()
    return {"config": config, "created_ms": created_ms, "state": encoded_state}


def _cut(state: DeliveryState, end: int) -> DeliveryState:
    """nats-server reads consumers after the messages, so that they may have come further than these."""
    pending = [it for it in state.partitions[0].pending if it.offset < end]
    return state._replace(partitions={0: DeliveredPartition(end, end, pending)})


def _refusal(error: Exception) -> ApiRefused:
    if isinstance(error, ApiRefused):
        said = error.error.description
        return error if error.error.err_code == 10062 else ApiRefused(restore_failed(said))
    return ApiRefused(restore_failed(" ".join(str(error).split())))


def _empty_folder(folder: Path) -> None:
    """What restores of an earlier run have left."""
    shutil.rmtree(folder, ignore_errors=True)


async def _guarded(work: Any) -> None:
    """One snapshot or restore concerns no other part."""
    try:
        await work
    except nats.errors.Error as error:
        logger.info("a snapshot ended: NATS is away", extra={"error": str(error)})
    except Exception:
        logger.exception(FAULT.logged_as("a snapshot or a restore failed"))
