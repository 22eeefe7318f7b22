"""A node that follows: the core's effects, carried out in order over NATS."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from nats.aio.client import Client

from streamlog.condition import CRITICAL, NO_ACTION, Condition
from streamlog.errors import BlockNotReady, ChannelNotReady, CorruptBlock, StreamlogError
from streamlog.ledger.api import LedgerClient
from streamlog.ledger.channel.channel import Channel
from streamlog.ledger.core.block import Block
from streamlog.ledger.core.channel_follower import (
    AppendPulled,
    AskHeight,
    BlockPulled,
    ChannelFollower,
    CorruptPulled,
    DeadlineReached,
    Discard,
    Diverged,
    Effect,
    EndPull,
    Event,
    FollowerLimits,
    HaltFollower,
    HeightTold,
    JoinPoint,
    PeerFailed,
    Promote,
    PullBlocks,
    PullEnded,
    Refuse,
)
from streamlog.ledger.core.encoding import decode_block
from streamlog.ledger.core.signing import Signer
from streamlog.ledger.deliver import Behavior

logger = logging.getLogger(__name__)

BLOCKS_DISCARDED: Final = Condition(
    "SL-0707",
    "onboarded blocks discarded",
    NO_ACTION,
    meaning="Blocks that were fetched ahead did not join the chain, and are fetched again.",
)
PEER_REFUSED: Final = Condition(
    "SL-0708",
    "peer refused",
    "see who runs that peer: what it sent is not of this chain",
    meaning="A peer sent blocks whose hashes do not fit the chain.",
)
CHAIN_DIVERGED: Final = Condition(
    "SL-0709",
    "chain has diverged",
    "compare `streamlog ledger verify` of several nodes; remove the folder that is wrong",
    meaning="All peers have another history than this node from some block on.",
    severity=CRITICAL,
)

PULLED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of blocks that came and are not on the disk yet; the peer waits then. One block may be larger."""


class LedgerFollower:
    """Called with a channel, it follows until this node is a consenter of it."""

    def __init__(
        self,
        client: Callable[[], Client],
        *,
        node: str,
        signer: Signer | None = None,
        peers: Sequence[str] = (),
        joins: Mapping[str, JoinPoint] | None = None,
        limits: FollowerLimits | None = None,
    ) -> None:
        """``client``: the connection to NATS, when it is needed. ``joins``: by channel."""
        self._client = client
        self._node = node
        self._signer = signer
        self._peers = peers
        self._joins = joins or {}
        self._limits = limits

    async def __call__(self, channel: Channel) -> None:
        """Raises ChannelNotReady for a configuration that is too new, Unavailable where the disk
        fails.
        """
        genesis = decode_block((await channel.ledger.read(0, max_bytes=1))[0].data)
        follower = ChannelFollower(
            self._node,
            channel.name,
            tip=channel.tip,
            configuration=channel.config,
            genesis=genesis,
            peers=self._peers,
            join=self._joins.get(channel.name),
            limits=self._limits,
        )
        client = LedgerClient(self._client(), signer=self._signer)
        async with asyncio.TaskGroup() as tasks:
            term = _Term(channel, follower, client, tasks)
            try:
                await term.run()
            finally:
                term.close()


class _Term:
    """From one role to the next."""

    def __init__(
        self,
        channel: Channel,
        follower: ChannelFollower,
        client: LedgerClient,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._channel = channel
        self._follower = follower
        self._client = client
        self._tasks = tasks
        self._inbox = _Inbox()
        self._asking: set[asyncio.Task[None]] = set()
        self._pulling: asyncio.Task[None] | None = None
        self._told: dict[str, tuple[str, str]] = {}  # what was said of peers that are refused
        self._is_over = False
        self._is_diverged = False

    async def run(self) -> None:
        """Until it is a consenter."""
        await self._carry_out(self._follower.start(_now_ms()))
        while not self._is_over:
            effects: list[Effect] = []
            for event in await self._inbox.take(self._follower.deadline_ms):
                effects += self._follower.step(event, _now_ms())
            effects += self._follower.step(DeadlineReached(), _now_ms())
            await self._carry_out(effects)

    def close(self) -> None:
        """Ask no node any more."""
        for task in (*self._asking, self._pulling):
            if task is not None:
                task.cancel()

    async def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Blocks that come one after the other become durable together, before what follows."""
        blocks: list[Block] = []
        for effect in effects:
            if isinstance(effect, AppendPulled):
                blocks.append(effect.block)
                self._told.pop(effect.peer, None)
                continue
            await self._append(blocks)
            blocks = []
            await self._do(effect)
        await self._append(blocks)
        self._channel.observer.following(self._channel.name, self._follower.lag)

    async def _append(self, blocks: list[Block]) -> None:
        if not blocks:
            return
        await self._channel.append_pulled(blocks)
        if self._is_diverged:
            self._is_diverged, self._channel.problem = False, ""

    async def _do(self, effect: Effect) -> None:
        extra = {"channel": self._channel.name}
        match effect:
            case AskHeight(peer):
                task = self._tasks.create_task(self._ask(peer))
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)
            case PullBlocks():
                self._end_pull()
                self._pulling = self._tasks.create_task(self._pull(effect))
            case EndPull():
                self._end_pull()
            case Discard(height):
                logger.warning(BLOCKS_DISCARDED, extra=extra | {"height": height})
                await self._channel.forget_from(height)
            case Refuse():
                self._tell_refused(effect)
            case Diverged(number, reason):
                self._is_diverged = True
                self._channel.problem = (
                    f"the chain has diverged: every peer has another history at block {number}"
                    f" ({reason}); compare `streamlog ledger verify` of several nodes, and remove"
                    " the folder of the channel where it is wrong"
                )
                logger.error(CHAIN_DIVERGED, extra=extra | {"number": number})
            case HaltFollower(number, version):
                raise ChannelNotReady(
                    f"block {number} has a configuration of format {version}: a later streamlog"
                    " is needed to go on"
                )
            case Promote(height):
                logger.info("becomes a consenter", extra=extra | {"height": height})
                self._is_over = True

    def _tell_refused(self, refuse: Refuse) -> None:
        """Each peer's trouble once, however often it comes again."""
        reason = str(refuse.reason)
        self._channel.observer.refused(self._channel.name, reason)
        if self._told.get(refuse.peer) == (reason, refuse.detail):
            return
        self._told[refuse.peer] = (reason, refuse.detail)
        extra: dict[str, object] = {"channel": self._channel.name, "peer": refuse.peer}
        extra |= {"reason": reason, "detail": refuse.detail}
        extra |= {"block": refuse.number, "avoided_ms": refuse.avoided_ms}
        logger.warning(PEER_REFUSED, extra=extra)

    def _end_pull(self) -> None:
        pulling, self._pulling = self._pulling, None
        if pulling is not None:
            pulling.cancel()

    async def _ask(self, peer: str) -> None:
        event: Event
        try:
            answer = await self._client.info(self._channel.name, node=peer)
            event = HeightTold(peer, int(answer["height"]))
        except StreamlogError as error:
            event = PeerFailed(peer, str(error))
        except (KeyError, TypeError, ValueError, OverflowError):
            event = PeerFailed(peer, "it does not tell its height")
        await self._inbox.put(event)

    async def _pull(self, pull: PullBlocks) -> None:
        event: Event = PullEnded(pull.pull)
        delivery = self._client.deliver(
            self._channel.name,
            pull.start,
            pull.stop,
            Behavior.FAIL_IF_NOT_READY,
            node=pull.peer,
        )
        try:
            async with contextlib.aclosing(delivery):
                async for found in delivery:
                    await self._inbox.put(BlockPulled(pull.pull, found.block, found.signature))
        except CorruptBlock as error:
            event = CorruptPulled(pull.pull, str(error))
        except BlockNotReady:
            pass  # it ends there, whatever height was told
        except StreamlogError as error:
            event = PeerFailed(pull.peer, str(error))
        await self._inbox.put(event)


class _Inbox:
    """Events in order; who pulls waits while the blocks among them are too many bytes."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._size_bytes = 0
        self._changed = asyncio.Event()

    async def put(self, event: Event) -> None:
        size_bytes = event.block.header.data_bytes if isinstance(event, BlockPulled) else 0
        while size_bytes and self._size_bytes and self._size_bytes + size_bytes > PULLED_BYTES_MAX:
            await self._wait()
        self._events.append(event)
        self._size_bytes += size_bytes
        self._changed.set()

    async def take(self, deadline_ms: int | None) -> list[Event]:
        """All there are; waits for some until the deadline."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(_loop_time(deadline_ms)):
                while not self._events:
                    await self._wait()
        taken, self._events = self._events, []
        self._size_bytes = 0
        self._changed.set()
        return taken

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _loop_time(deadline_ms: int | None) -> float | None:
    if deadline_ms is None:
        return None
    return asyncio.get_running_loop().time() + max(0, deadline_ms - _now_ms() + 1) / 1_000
