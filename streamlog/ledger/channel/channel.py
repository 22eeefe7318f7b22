"""A channel that a node serves: its chain, its stream, and the node's part in it.

A new channel creates its stream or takes an existing one. ``SubmissionResults`` has the outcome of
each published configuration: in force, or overtaken by another.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from streamlog.client.cluster import Cluster
from streamlog.condition import CHECK_NODES, CRITICAL, Condition
from streamlog.errors import (
    AuthenticationFailed,
    ChannelNotReady,
    CorruptBlock,
    CorruptData,
    InvalidChannelConfig,
    InvalidRequest,
    InvalidSignature,
    NotAuthorized,
    OtherChannel,
    StaleConfiguration,
    StreamExists,
    StreamlogError,
    StreamLost,
    StreamNotFound,
    Unavailable,
)
from streamlog.ledger.channel.consumer import (
    MISSING_ATTEMPTS,
    StreamConsumer,
    StreamPlace,
    find_stream,
)
from streamlog.ledger.channel.observer import Observer, Unobserved
from streamlog.ledger.channel.ordering import Ordering
from streamlog.ledger.channel.publisher import StreamPublisher
from streamlog.ledger.core.block import Block
from streamlog.ledger.core.chain import ChainTip, configuration_in, find_genesis
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.channel_policy import ChannelPolicy
from streamlog.ledger.core.consenter import Consenter, Skipped, SkipReason
from streamlog.ledger.core.encoding import decode_block, encode_block
from streamlog.ledger.core.entry import configuration
from streamlog.ledger.storage.cached_ledger import CachedLedger
from streamlog.ledger.storage.folder import ChannelFile, LedgerFolder
from streamlog.ledger.storage.store import BlockStore
from streamlog.wire import registry
from streamlog.wire.errors import check, error_of

NOTED_MAX: Final = 1_000
"""The last so many are known; no client waits for older ones."""
_ERRORS: Final = {
    SkipReason.STALE_CONFIGURATION: StaleConfiguration,
    SkipReason.INVALID_CONFIGURATION: InvalidChannelConfig,
    SkipReason.SIGNATURE: InvalidSignature,
}


class SubmissionResults:
    """By the offset of the record; it may be known before the publisher has its acknowledgement."""

    def __init__(self) -> None:
        self._noted: OrderedDict[int, int | Skipped] = OrderedDict()
        self._changed = asyncio.Event()

    def note(self, offset: int, number: int) -> None:
        """It is in force, in this block."""
        self._put(offset, number)

    def note_skipped(self, effect: Skipped) -> None:
        """It is in no block."""
        if effect.reason in _ERRORS:
            self._put(effect.offset, effect)

    def _put(self, offset: int, outcome: int | Skipped) -> None:
        self._noted[offset] = outcome
        if len(self._noted) > NOTED_MAX:
            self._noted.popitem(last=False)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def of(self, offset: int, timeout_s: float) -> int | None:
        """The block that has it; None if that is not known in time.

        Raises StaleConfiguration, InvalidChannelConfig or InvalidSignature where it was overtaken.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while offset not in self._noted:
                    await self._changed.wait()
        except TimeoutError:
            return None
        outcome = self._noted[offset]
        if isinstance(outcome, Skipped):
            raise _ERRORS[outcome.reason](outcome.detail)
        return outcome


REPLICAS_MAX: Final = 3
TOPIC: Final = 2
"""Of what the configuration is asked for, in Kafka's numbers."""
TIMEOUT_MS: Final = 30_000
_KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


async def create_stream(cluster: Cluster, name: str) -> None:
    """One partition, subject and name the same, kept for ever, on up to three nodes.

    One that is there by now is as good. Raises what the controller answers, Unavailable.
    """
    nodes = (await cluster.topology([])).nodes
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": max(1, min(REPLICAS_MAX, len(nodes))),
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in _KEPT_FOR_EVER.items()],
    }
    values = {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False}
    answer = await cluster.ask_any(registry.CREATE_TOPICS, values)
    (found,) = answer["topics"]
    if found["error_code"]:
        error = error_of(found["error_code"], _about(name, found))
        if not isinstance(error, StreamExists):
            raise error


async def check_uncompacted(cluster: Cluster, name: str) -> None:
    """What compaction takes out would be missing for ordering nodes that come later.

    Raises InvalidRequest, what the node answers, Unavailable.
    """
    asked = {
        "resource_type": TOPIC,
        "resource_name": name,
        "configuration_keys": ["cleanup.policy"],
    }
    values = {"resources": [asked], "include_synonyms": False, "include_documentation": False}
    answer = await cluster.ask_any(registry.DESCRIBE_CONFIGS, values)
    (found,) = answer["results"]
    check(found["error_code"], _about(name, found))
    if any("compact" in (config["value"] or "") for config in found["configs"]):
        raise InvalidRequest(
            f"stream {name!r} is compacted, so that ordering nodes that come later would miss"
            " records; a channel wants one with cleanup.policy=delete"
        )


def _about(name: str, found: dict[str, Any]) -> str:
    message = found.get("error_message")
    return f"stream {name!r}: {message}" if message else f"stream {name!r}"


logger = logging.getLogger(__name__)

CHANNEL_HALTED: Final = Condition(
    "SL-0701",
    "channel halted",
    "correct what the problem names, and restart; docs/ledger.md",
    meaning="A channel orders no more blocks. Its blocks can still be read.",
    severity=CRITICAL,
)
CHANNEL_NOT_LET_IN: Final = Condition(
    "SL-0702",
    "channel is not let in",
    "see --user, --password-file and its rights (docs/ledger.md); it tries again",
    meaning="The cluster refuses the login of the ordering node, or it lacks a right.",
)
CHANNEL_WAITS: Final = Condition(
    "SL-0703",
    "channel waits",
    CHECK_NODES,
    meaning="The stream of a channel cannot be reached. The ordering node tries again.",
)

PAUSE_S: Final = 1.0
"""Before a channel that met something passing begins again at its tip."""
REFUSED_PAUSE_S: Final = 5.0
"""The same where its login was refused: nodes count such tries."""

Follow = Callable[["Channel"], Awaitable[None]]
"""What a node does that is no consenter: bring blocks by ``append_pulled`` until it is one."""


class Channel:
    """``run`` by one task; others broadcast and read meanwhile.

    ``ledger`` is there as soon as ``opened`` is set, and is read also while nothing is ordered. A
    channel that cannot go on says why in ``problem``, and disturbs no other.
    """

    def __init__(
        self,
        folder: LedgerFolder,
        file: ChannelFile,
        *,
        servers: str,
        node: str,
        connect: Callable[[str], Cluster] = Cluster.at,
        follow: Follow | None = None,
        join_height: int = 0,
        observer: Observer | None = None,
    ) -> None:
        """``join_height``: below it the node follows, whatever the configuration says."""
        self.name = file.channel
        self.node = node
        self.observer = observer or Unobserved()
        self.outcomes = SubmissionResults()
        self.opened = asyncio.Event()
        self.ready = asyncio.Event()
        """Set while messages are taken."""
        self.problem = ""  # why nothing is ordered; empty while it goes on
        self.is_halted = False  # for good, until a restart
        self.admission: ChannelPolicy | None = (
            None  # None before the chain's configuration is known
        )
        self.tip: ChainTip | None = None  # of the chain as it is on the disk
        self.publisher: StreamPublisher | None = None
        self.consumer: StreamConsumer | None = None
        self._folder = folder
        self._file = file
        self._servers = servers
        self._connect = connect
        self._follow = follow
        self._join_height = join_height
        self._ledger: CachedLedger | None = None
        self._ordering: Ordering | None = None

    @property
    def ledger(self) -> CachedLedger:
        """Raises ChannelNotReady before it is open."""
        if self._ledger is None:
            raise ChannelNotReady(f"channel {self.name!r} starts")
        return self._ledger

    @property
    def config(self) -> ChannelConfig | None:
        """In force after the last block."""
        return None if self.admission is None else self.admission.config

    @property
    def stream(self) -> str:
        return self._file.stream

    @property
    def is_consenter(self) -> bool:
        """This node cuts blocks; else it follows those that do."""
        return self.config is not None and self.config.is_consenter(self.node)

    def info(self) -> dict[str, Any]:
        """For JSON."""
        tip, config, consumer = self.tip, self.config, self.consumer
        return {
            "channel": self.name,
            "stream": self.stream,
            "node": self.node,
            "role": "consenter" if self.is_consenter else "follower",
            "height": 0 if self._ledger is None else self._ledger.height,
            "tip": "" if tip is None else tip.hash.hex(),
            "next_offset": None if tip is None else tip.next_offset,
            "high_watermark": None if consumer is None else consumer.high_watermark,
            "pending": self._ordering.consenter.pending_count if self._ordering else 0,
            "problem": self.problem or (consumer.problem if consumer else ""),
            "config": None if config is None else config.model_dump(mode="json"),
        }

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                try:
                    await self._go_on(await self._prepared())
                except StreamlogError as error:
                    met = error
                except BaseExceptionGroup as group:
                    met = _known(group)
                _stop_if_cancelled()
                await self._meet(met)
        finally:
            if self._ledger is not None:
                self._ledger.close()

    async def _prepared(self) -> CachedLedger:
        """Open, repaired where it was found damaged, all of it durable. Raises Unavailable."""
        path = self._folder.blocks(self.name)
        ledger = self._ledger
        if ledger is None:
            store = await asyncio.to_thread(BlockStore.open, path, self._folder.disk)
            ledger = self._ledger = CachedLedger(store)
        elif ledger.store.failed:
            ledger.replace(lambda: BlockStore.open(path, self._folder.disk))
        if ledger.damage_found.is_set():
            before = ledger.height
            self.observer.repaired(self.name, before - ledger.repair())
        await ledger.settle()
        return ledger

    async def _go_on(self, ledger: CachedLedger) -> None:
        """From the tip on, up to whatever goes wrong."""
        async with self._connect(self._servers) as cluster, asyncio.TaskGroup() as tasks:
            tasks.create_task(_watch(ledger))
            await self._read_tip(ledger)
            self.opened.set()
            tasks.create_task(ledger.check())
            place = await self._find_stream(cluster)
            self.consumer = StreamConsumer(cluster, place)
            self.publisher = StreamPublisher(cluster, place.tp, place.topic_id)
            tasks.create_task(self.publisher.run())
            if self.tip is None:
                await self._begin_chain(ledger)
            if self.problem:
                logger.info("channel goes on", extra={"channel": self.name})
            self.problem = ""
            self.ready.set()
            while True:
                await self._serve_term(ledger)

    async def _meet(self, error: StreamlogError) -> None:
        """What is passing is waited for; what is not halts the channel, which is still read."""
        self.ready.clear()
        self.publisher = None
        is_news = self.problem != str(error)
        self.problem = str(error)
        extra = {"channel": self.name, "problem": self.problem}
        if isinstance(error, _Damaged):
            return
        is_refused = isinstance(error, AuthenticationFailed | NotAuthorized)  # until that changes
        if is_refused or (
            isinstance(error, Unavailable) and not isinstance(error, ChannelNotReady)
        ):
            if is_news:  # it is tried again every few seconds
                told = CHANNEL_NOT_LET_IN if is_refused else CHANNEL_WAITS
                logger.warning(told, extra=extra)
            await asyncio.sleep(REFUSED_PAUSE_S if is_refused else PAUSE_S)
            return
        logger.error(CHANNEL_HALTED, extra=extra)
        self.is_halted = True
        self.opened.set()
        await asyncio.Event().wait()

    async def _read_tip(self, ledger: CachedLedger) -> None:
        """The chain's end, and what is in force after it. Raises OtherChannel, _Damaged."""
        if not ledger.height:
            self.tip = self.admission = None
            return
        number = ledger.height - 1
        try:
            last = decode_block((await ledger.read(number))[0].data)
            number = last.metadata.last_configuration
            config = configuration_in(decode_block((await ledger.read(number))[0].data))
        except CorruptBlock as error:  # whole on the disk, and yet no block
            ledger.truncate(number)
            raise _Damaged(str(error)) from error
        if last.header.channel != self.name:
            raise OtherChannel(
                f"the blocks in the folder of channel {self.name!r} are those of"
                f" {last.header.channel!r}; give the folder its name back"
            )
        self.tip, self.admission = ChainTip.of(last), ChannelPolicy(config)

    async def _find_stream(self, cluster: Cluster) -> StreamPlace:
        """Its stream, made where the channel is new. Raises StreamLost."""
        name, known = self._file.stream, self._file.topic_id
        try:
            attempts = 1 if known is None else MISSING_ATTEMPTS
            place = await find_stream(cluster, name, attempts=attempts)
        except StreamNotFound:
            if known is not None or self.tip is not None:
                raise StreamLost(
                    f"there is no stream {name!r} any more, or none that this login may know of;"
                    " what was ordered is kept, and can be delivered"
                ) from None
            await create_stream(cluster, name)
            logger.info("stream created", extra={"channel": self.name, "stream": name})
            place = await find_stream(cluster, name)
        if known is None:
            await check_uncompacted(cluster, name)
            self._file = self._file.model_copy(update={"topic_id": place.topic_id})
            await asyncio.to_thread(self._folder.write, self._file)
        elif known != place.topic_id:
            raise StreamLost(
                f"stream {name!r} is not the one that channel {self.name!r} has ordered: that was"
                " deleted; what was ordered is kept; serve the new one as another channel"
            )
        return place

    async def _begin_chain(self, ledger: CachedLedger) -> None:
        """Block 0 out of the stream, which gets one where it has none."""
        assert self.consumer is not None and self.publisher is not None
        start, end = await self.consumer.log_start(), await self.consumer.log_end()
        genesis = await self._genesis_in(start, end)
        if genesis is None:
            config = self._file.genesis or ChannelConfig(channel=self.name)
            config = config.model_copy(update={"start_offset": start})
            await self.publisher.publish(configuration(config))
            genesis = await self._genesis_in(end, None)
        assert genesis is not None
        if genesis.header.channel != self.name:
            raise OtherChannel(
                f"stream {self.stream!r} is that of channel {genesis.header.channel!r}; serve it"
                " by that name, or name another stream"
            )
        await self.append_pulled([genesis])

    async def _genesis_in(self, start: int, stop: int | None) -> Block | None:
        """The first in ``[start, stop)``; without a stop it is waited for."""
        assert self.consumer is not None
        async for run in self.consumer.runs(start, stop=stop):
            genesis = find_genesis(run.records)
            if genesis is not None:
                return genesis
        return None

    async def _serve_term(self, ledger: CachedLedger) -> None:
        """As a consenter or a follower, until the configuration says otherwise."""
        config, tip = self.config, self.tip
        assert config is not None and tip is not None
        assert self.consumer is not None and self.publisher is not None
        if not self.is_consenter or ledger.height < self._join_height:
            if self._follow is None:
                raise OtherChannel(f"node {self.node!r} is no consenter of channel {self.name!r}")
            await self._follow(self)
            return
        last = decode_block((await ledger.read(tip.number))[0].data)
        await self.consumer.check_has(last)
        self._ordering = Ordering(
            Consenter(tip, config),
            node=self.node,
            ledger=ledger,
            consumer=self.consumer,
            publisher=self.publisher,
            listener=self,
            observer=self.observer,
        )
        try:
            await self._ordering.run(lambda: not self.is_consenter)
        finally:
            self._ordering = None

    async def append_pulled(self, blocks: Sequence[Block]) -> None:
        """Blocks that were not cut here, checked, the next ones; durable when it returns."""
        await self.ledger.append(blocks[0].number, [encode_block(block) for block in blocks])
        for block in blocks:
            self.observer.appended(block, None)
            self.grown(block)
            if block.is_configuration:
                self.changed(configuration_in(block), block)

    async def forget_from(self, height: int) -> None:
        """Blocks that were pulled turned out to be wrong. Raises Unavailable."""
        self.ledger.truncate(height)
        await self._read_tip(self.ledger)

    def grown(self, block: Block) -> None:
        """The chain has this block now."""
        self.tip = ChainTip.of(block)

    def changed(self, config: ChannelConfig, block: Block) -> None:
        """The configuration in ``block`` holds from now on."""
        self.admission = ChannelPolicy(config)
        self.outcomes.note(block.metadata.first_offset, block.number)
        extra = {"channel": self.name, "sequence": config.sequence, "block": block.number}
        logger.info("configuration in force", extra=extra)

    def skipped(self, effect: Skipped) -> None:
        """A record is in no block, on any node."""
        self.outcomes.note_skipped(effect)


class _Damaged(CorruptData):
    """The local ledger has to be repaired."""


async def _watch(ledger: CachedLedger) -> None:
    await ledger.damage_found.wait()
    raise _Damaged("the ledger was found damaged, and is being repaired")


def _stop_if_cancelled() -> None:
    """A group that is cancelled while one of its tasks fails tells of the failure alone."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _known(group: BaseExceptionGroup[BaseException]) -> StreamlogError:
    """The first that was raised on purpose. Raises the group if anything else is in it."""
    known, unknown = group.split(StreamlogError)
    if unknown is not None or known is None:
        raise group
    error: BaseException = known
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, StreamlogError)
    return error
