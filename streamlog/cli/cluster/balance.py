"""``streamlog cluster balance``: what would even out the load of the nodes; and the moves that do so.

The command makes the moves itself, a few at a time: it has to run until they are done. Whenever it ends, what is under
way goes on, nothing else begins, and the next plan takes up what is left.
"""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Self

import typer

from streamlog.cli.cluster.controller import ask
from streamlog.cli.cluster.waiting import POLL_S
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.output import Size, print_json, print_pairs, print_table, say
from streamlog.config.units import size_bytes
from streamlog.errors import ConfigError, StreamlogError, Unavailable

if TYPE_CHECKING:
    from streamlog.cli.cluster.controller import Controller
    from streamlog.client.topology import PartitionInfo, Topology

PLAN_TIMEOUT_MS: Final = 60_000
"""Beside the time for which rates are measured."""
UNSEEN_S: Final = 15.0
"""A move that no node tells of for so long was cancelled at once."""
INTERRUPTED: Final = 130
"""The exit code."""


class PlannedMove(NamedTuple):
    """A partition, the replicas that it has, and those that it is to have; the first one leads."""

    stream: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    goal: str
    copied_bytes: int

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        before, after = tuple(fields["before"]), tuple(fields["after"])
        return cls(
            fields["stream"],
            fields["partition"],
            before,
            after,
            fields["goal"],
            fields["copied_bytes"],
        )

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}"


def balance(
    execute: Annotated[bool, typer.Option("--execute", help="Make the moves.")] = False,
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel", help="Cancel all moves that are under way; another --execute ends."
        ),
    ] = False,
    concurrent_moves: Annotated[
        int, typer.Option(min=1, max=1_000, help="Partitions that move at once.")
    ] = 5,
    bytes_per_second: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Begin moves no faster than that, on average: 50MiB. How fast they copy is a setting of the nodes.",
        ),
    ] = None,
    sample_seconds: Annotated[
        float, typer.Option(min=0.1, max=300, help="Measure rates for so long.")
    ] = 5.0,
    max_moves: Annotated[int, typer.Option(min=1, help="Partitions that one plan moves.")] = 1_000,
    disk_limit: Annotated[
        int, typer.Option(min=1, max=100, metavar="PERCENT", help="No disk is to be fuller.")
    ] = 80,
    tolerance: Annotated[
        int,
        typer.Option(min=0, max=100, metavar="PERCENT", help="So far from the mean is even."),
    ] = 10,
    yes: Yes = False,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Even out what nodes carry: disk, bytes in and out, leaders, replicas. Without --execute: only show the moves."""
    if execute and cancel:
        raise typer.BadParameter("--execute or --cancel, not both")
    if cancel:
        _cancel(servers, yes=yes, as_json=as_json)
        return
    rate = _rate_of(bytes_per_second)

    async def ask_for_plan(controller: "Controller") -> dict[str, Any]:
        plan = await controller.operate(
            "placement.plan_balance",
            sample_s=sample_seconds,
            moves_max=max_moves,
            disk_limit_percent=disk_limit,
            tolerance_percent=tolerance,
            timeout_ms=int(sample_seconds * 1000) + PLAN_TIMEOUT_MS,
        )
        return dict(plan)

    plan = ask(servers, ask_for_plan)
    moves = [PlannedMove.of(it) for it in plan["moves"]]
    if not as_json:
        _show(plan, moves, is_dry=not execute)
    if not execute or not moves:
        if as_json:
            print_json(plan)
        return
    if not yes:
        question = f"Move {len(moves)} partitions, copying {Size(plan['copied_bytes'])}?"
        typer.confirm(question, abort=True, err=True)
    done = ask(servers, lambda it: Execution(it, moves, concurrent_moves, rate).run())
    if as_json:
        print_json({**plan, **done._asdict()})
    else:
        say(f"{done.moved} of {len(moves)} partitions moved")
    if done.interrupted:
        raise typer.Exit(INTERRUPTED)
    if done.moved < len(moves):
        raise typer.Exit(1)


def _rate_of(text: str | None) -> int | None:
    """Raises ConfigError."""
    if text is None:
        return None
    try:
        rate = size_bytes(text)
    except ValueError as error:
        raise ConfigError("--bytes-per-second", str(error), "write 50MiB") from None
    if rate < 1:
        raise ConfigError("--bytes-per-second", "it is 0", "write 50MiB, or leave it out")
    return rate


def _cancel(servers: str, *, yes: bool, as_json: bool) -> None:
    if not yes:
        question = "Cancel every move that is under way, whatever it was begun for?"
        typer.confirm(question, abort=True, err=True)

    async def cancel_all(controller: "Controller") -> tuple[list[str], dict[str, str]]:
        cancelled, refused = list[str](), dict[str, str]()
        for it in await controller.operate("placement.moves"):
            place = {"stream": it["stream"], "partition": it["partition"]}
            name = f"{it['stream']}/{it['partition']}"
            try:
                await controller.operate("placement.cancel_move", **place)
                cancelled.append(name)
            except StreamlogError as error:
                refused[name] = str(error)
        return cancelled, refused

    cancelled, refused = ask(servers, cancel_all)
    if as_json:
        print_json({"cancelled": cancelled, "refused": refused})
    else:
        for name, why in refused.items():
            say(f"{name}: {why}", to_stderr=True)
        say(f"{len(cancelled)} moves are cancelled")
    if refused:
        raise typer.Exit(1)


# What is planned


def _show(plan: Mapping[str, Any], moves: Sequence[PlannedMove], *, is_dry: bool) -> None:
    for it in plan["missing"]:
        say(f"node {it['node']} is left alone, with what it keeps: {it['reason']}", to_stderr=True)
    if moves:
        print_table(
            ("STREAM", "PARTITION", "NOW", "THEN", "FOR", "COPIED"),
            (
                (it.stream, it.partition, it.before, it.after, it.goal, Size(it.copied_bytes))
                for it in moves
            ),
        )
        say()
    print_table(
        ("NODE", "RACK", "DISK", "BYTES IN/S", "BYTES OUT/S", "LEADS", "REPLICAS"),
        (_row(it) for it in plan["nodes"]),
    )
    say()
    left = [("Left alone", f"{plan['left_alone']} partitions")] if plan["left_alone"] else []
    print_pairs(
        [("Partitions to move", len(moves)), ("To be copied", Size(plan["copied_bytes"])), *left]
    )
    if not plan["is_complete"]:
        say("there is more to move than one plan may: run it again afterwards")
    if not moves:
        say("nothing is to be moved")
    elif is_dry:
        say("nothing was moved: --execute does it")


def _row(node: Mapping[str, Any]) -> tuple[object, ...]:
    before, after, total = node["before"], node["after"], node["disk_total_bytes"]

    def change(name: str) -> str:
        values = [before[name], after[name]]
        sizes = [str(Size(it)) if "bytes" in name else str(it) for it in values]
        return sizes[0] if sizes[0] == sizes[1] else " -> ".join(sizes)

    percents = [f"{100 * it['disk_used_bytes'] / max(1, total):.1f} %" for it in (before, after)]
    disk = percents[0] if percents[0] == percents[1] else " -> ".join(percents)
    names = ("bytes_in_per_s", "bytes_out_per_s", "leaders", "replicas")
    return node["node"], node["rack"], disk, *map(change, names)


# Carrying it out


class BalanceOutcome(NamedTuple):
    """What became of the moves."""

    moved: int
    failed: dict[str, str]
    """By partition: why."""
    interrupted: bool


class Execution:
    """Makes moves, at most so many at once, in their order. ``run`` once."""

    def __init__(
        self,
        controller: "Controller",
        moves: Sequence[PlannedMove],
        concurrent_moves: int,
        bytes_per_s: int | None,
    ) -> None:
        self._controller = controller
        self._waiting = deque(moves)
        self._count = len(moves)
        self._concurrent_moves = concurrent_moves
        self._bytes_per_s = bytes_per_s
        self._under_way: dict[PlannedMove, float | None] = {}
        """When it was asked for; None: a node has told that it has begun."""
        self._next_s = 0.0
        """When the next one may begin."""
        self._moved = 0
        self._failed: dict[str, str] = {}
        self._stops = asyncio.Event()
        """No further move begins."""
        self._leaves = asyncio.Event()
        """Nor is waited for those that are under way."""
        self._interrupted = False

    async def run(self) -> BalanceOutcome:
        """Until all is done; or, after the first Ctrl-C, what is under way; or, after another one, at once."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            while self._under_way or (self._waiting and not self._stops.is_set()):
                if self._leaves.is_set():
                    break
                try:
                    await self._look()
                except Unavailable as error:
                    say(f"waiting: {error}", to_stderr=True)
                await self._pause()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        return BalanceOutcome(self._moved, self._failed, self._interrupted)

    def _interrupt(self) -> None:
        if self._interrupted:
            self._leaves.set()
            return
        self._interrupted = True
        self._stops.set()
        say(
            f"no further move begins; {len(self._under_way)} are under way: Ctrl-C again does not wait for them",
            to_stderr=True,
        )

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(POLL_S):
                await self._leaves.wait()
        except TimeoutError:
            pass

    async def _look(self) -> None:
        topology = await self._controller.topology()
        for move in list(self._under_way):
            await self._go_on(move, topology)
        while (
            self._waiting
            and not self._stops.is_set()
            and len(self._under_way) < self._concurrent_moves
            and time.monotonic() >= self._next_s
        ):
            await self._begin(self._waiting[0], topology)
            self._waiting.popleft()

    async def _begin(self, move: PlannedMove, topology: "Topology") -> None:
        found = _partition_of(move, topology)
        if found is not None and found.replicas[: len(move.after)] == move.after:
            self._under_way[move] = None  # the answer to the request before was lost
            return
        if found is None or set(found.replicas) != set(move.before):
            self._fail(move, "it has other replicas by now than when this was planned")
            return
        try:
            await self._controller.operate(
                "placement.move",
                stream=move.stream,
                partition=move.partition,
                replicas=move.after,
            )
        except Unavailable:
            raise
        except StreamlogError as error:
            self._fail(move, str(error))
            return
        self._under_way[move] = time.monotonic()
        if self._bytes_per_s is not None:
            began_s = max(self._next_s, time.monotonic())
            self._next_s = began_s + move.copied_bytes / self._bytes_per_s

    async def _go_on(self, move: PlannedMove, topology: "Topology") -> None:
        """Once it is kept by the new replicas, the first one of them is to lead."""
        found = _partition_of(move, topology)
        if found is None:
            self._end(move, "its stream is gone")
        elif tuple(found.replicas) == move.after:
            if found.leader != move.after[0]:
                try:
                    await self._controller.operate(
                        "placement.elect", stream=move.stream, partition=move.partition
                    )
                except Unavailable:
                    raise
                except StreamlogError as error:
                    self._end(move, f"moved, but node {move.after[0]} does not lead it: {error}")
                    return
            del self._under_way[move]
            self._moved += 1
            kept = ", ".join(map(str, move.after))
            say(f"{self._moved} of {self._count}: {move} is kept by {kept}", to_stderr=True)
        elif set(move.after) <= set(found.replicas):
            self._under_way[move] = None
        else:
            asked_s = self._under_way[move]
            if asked_s is None or time.monotonic() > asked_s + UNSEEN_S:
                self._end(move, "its move was cancelled")
                self._stops.set()

    def _end(self, move: PlannedMove, why: str) -> None:
        del self._under_way[move]
        self._fail(move, why)

    def _fail(self, move: PlannedMove, why: str) -> None:
        self._failed[str(move)] = why
        say(f"{move}: {why}", to_stderr=True)


def _partition_of(move: PlannedMove, topology: "Topology") -> "PartitionInfo | None":
    topic = topology.topics.get(move.stream)
    if topic is None or move.partition >= len(topic.partitions):
        return None
    return topic.partition(move.partition)
