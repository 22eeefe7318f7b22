"""A channel that a node serves: its chain, its stream, and the node's part in it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from streamlog.client.cluster import Cluster
from streamlog.errors import (
    AuthenticationFailed,
    ChannelNotReady,
    CorruptBlock,
    CorruptData,
    NotAuthorized,
    OtherChannel,
    StreamlogError,
    StreamLost,
    StreamNotFound,
    Unavailable,
)
from streamlog.ledger.cached_ledger import CachedLedger
from streamlog.ledger.consumer import MISSING_ATTEMPTS, StreamConsumer, StreamPlace, find_stream
from streamlog.ledger.core.block import Block
from streamlog.ledger.core.chain import ChainTip
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.channel_policy import ChannelPolicy
from streamlog.ledger.core.consenter import Consenter, Skipped
from streamlog.ledger.core.encoding import decode_block, encode_block
from streamlog.ledger.core.entry import configuration
from streamlog.ledger.core.genesis import configuration_in, find_genesis
from streamlog.ledger.folder import ChannelFile, LedgerFolder
from streamlog.ledger.observer import Observer, Unobserved
from streamlog.ledger.ordering import Ordering
from streamlog.ledger.publisher import StreamPublisher
from streamlog.ledger.store import BlockStore
from streamlog.ledger.streams import check_uncompacted, create_stream
from streamlog.ledger.submission_results import SubmissionResults

logger = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
"""Before a channel that met something passing begins again at its tip."""
REFUSED_PAUSE_S: Final = 5.0
"""Likewise where it was not let in: nodes count such tries."""

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
        """Open, mended where it was found damaged, all of it durable. Raises Unavailable."""
        path = self._folder.blocks(self.name)
        ledger = self._ledger
        if ledger is None:
            store = await asyncio.to_thread(BlockStore.open, path, self._folder.disk)
            ledger = self._ledger = CachedLedger(store)
        elif ledger.store.failed:
            ledger.replace(lambda: BlockStore.open(path, self._folder.disk))
        if ledger.damage_found.is_set():
            before = ledger.height
            self.observer.mended(self.name, before - ledger.mend())
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
                told = "channel is not let in" if is_refused else "channel waits"
                logger.warning(told, extra=extra)
            await asyncio.sleep(REFUSED_PAUSE_S if is_refused else PAUSE_S)
            return
        logger.error("channel halted", extra=extra)
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
    """The local ledger has to be mended."""


async def _watch(ledger: CachedLedger) -> None:
    await ledger.damage_found.wait()
    raise _Damaged("the ledger was found damaged, and is being mended")


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
