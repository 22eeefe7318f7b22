"""A group whose members, coordinator and log do what they like, by seed; and what must hold."""

from collections.abc import Callable
from random import Random
from typing import Final

from streamlog.config import GroupsSection
from streamlog.coordination.effects import NONE
from streamlog.groups.requests import GroupCaller, Joined, SyncedMember
from streamlog.wire.error_codes import ErrorCode
from tests.group_world import GroupWorld, Token, subscription

PARTITIONS: Final = 6
EVENTS: Final = 600
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 20_000
BEAT_MS: Final = 1_000
PROTOCOLS: Final = (("range", subscription("t")),)


class Broken(AssertionError):
    """A promise was."""


class SimulatedMember:
    """A client that follows the protocol, as long as it lives."""

    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.joined: Joined | None = None
        self.owns: frozenset[int] = frozenset()
        """As it was told last; nothing as soon as it hears of a rebalance."""
        self.joining: Token | None = None
        self.syncing: Token | None = None
        self.commit: tuple[int, Token] | None = None

    @property
    def caller(self) -> GroupCaller:
        generation = -1 if self.joined is None else self.joined.generation
        return GroupCaller(self.member_id, self.instance_id, generation)

    def forget(self, error: ErrorCode) -> None:
        """It has to join again, perhaps as somebody new."""
        self.joined, self.owns = None, frozenset()
        self.joining = self.syncing = None
        if error is ErrorCode.unknown_member_id:
            self.member_id = ""


class GroupsStory:
    """Plays ``EVENTS`` random events, then lets everybody behave until all is calm."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.story: list[str] = []
        self.events_run = 0
        delay_ms = self.rng.choice((0, 500))
        settings = GroupsSection(initial_rebalance_delay_ms=delay_ms, session_timeout_ms_min=1_000)
        self.world = GroupWorld(settings, commits=False)
        self.members: list[SimulatedMember] = []
        self.made = 0
        self.sent = 0
        """Commits; each is of a larger offset than those before."""
        self.acknowledged = 0
        """The largest that anybody was told to be kept."""
        self.owners: dict[tuple[int, int], str] = {}
        """Who was given a partition in a generation."""

    def run(self) -> None:
        often = [self.step] * 12 + [self.write] * 8 + [self.save] * 6 + [self.beat] * 3
        seldom = [
            self.come, self.come, self.pass_time, self.pass_time, self.leave, self.die,
            self.restart, self.crash, self.lose_answer, self.refuse,
        ]  # fmt: skip
        acts: list[Callable[[], None]] = often + seldom
        for _ in range(EVENTS):
            self.rng.choice(acts)()
            self.look()
        self.calm()

    def tell(self, text: str) -> None:
        self.events_run += 1
        self.story.append(f"{self.world.ms:>9} {self.world.state() or '-':<20} {text}")

    def any(self) -> SimulatedMember | None:
        return self.rng.choice(self.members) if self.members else None

    # What happens

    def come(self) -> None:
        if len(self.members) < 5:
            self.made += 1
            static = self.rng.random() < 0.3
            name = f"m{self.made}"
            self.members.append(SimulatedMember(name, name if static else None))
            self.tell(f"{name} comes")

    def step(self) -> None:
        """One member does what is next for it."""
        member = self.any()
        if member is not None:
            self.tell(f"{member.name} goes on")
            self.go_on(member)

    def go_on(self, member: SimulatedMember) -> None:
        world = self.world
        if member.joining is not None:
            if member.joining.is_answered:
                self.has_joined(member, member.joining.result)
        elif member.syncing is not None:
            if member.syncing.is_answered:
                self.has_synced(member, member.syncing.result)
        elif member.joined is None:
            member.joining = world.join(
                member.member_id,
                instance_id=member.instance_id,
                protocols=PROTOCOLS,
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
                needs_known_id=True,
            )

    def has_joined(self, member: SimulatedMember, joined: Joined) -> None:
        member.joining = None
        if joined.error is ErrorCode.member_id_required:
            member.member_id = joined.member_id
            return
        if joined.error is not NONE:
            member.forget(joined.error)
            return
        member.member_id, member.joined = joined.member_id, joined
        assignments: dict[str, bytes] = {}
        if joined.leader == joined.member_id:
            ids = [it.member_id for it in joined.members]
            for number in range(PARTITIONS if ids else 0):
                owner = ids[number % len(ids)]
                assignments[owner] = assignments.get(owner, b"") + bytes([number])
        member.syncing = self.world.sync(joined, assignments, instance_id=member.instance_id)

    def has_synced(self, member: SimulatedMember, synced: SyncedMember) -> None:
        member.syncing = None
        assert member.joined is not None
        if synced.error is not NONE:
            member.forget(synced.error)
            return
        member.owns = frozenset(synced.assignment)
        generation, who = member.joined.generation, member.instance_id or member.member_id
        for number in member.owns:
            known = self.owners.setdefault((generation, number), who)
            if known != who:
                raise Broken(f"{number} belongs to {known} and {who} in generation {generation}")

    def beat(self) -> None:
        member = self.any()
        if member is not None and member.joined is not None:
            self.tell(f"{member.name} beats")
            self.beats(member)

    def beats(self, member: SimulatedMember) -> None:
        if member.joined is None or member.syncing is not None:
            return
        error = self.world.beat(member.joined, instance_id=member.instance_id)
        if error is not NONE:
            member.forget(error)

    def save(self) -> None:
        """A member commits, if it has something to."""
        member = self.any()
        if member is not None and member.owns and member.commit is None:
            self.sent += 1
            self.tell(f"{member.name} commits {self.sent}")
            member.commit = self.sent, self.world.commit(self.sent, member.caller)

    def write(self) -> None:
        if self.world.writing:
            self.tell("the log takes something")
            self.world.commit_log(self.rng.randint(1, len(self.world.writing)))

    def pass_time(self) -> None:
        ms = self.rng.choice((10, 100, 500, 1_000, 5_000, 30_000))
        self.tell(f"{ms} ms go by")
        self.world.wait(ms)

    def leave(self) -> None:
        member = self.any()
        if member is not None and self.rng.random() < 0.3:
            self.tell(f"{member.name} leaves")
            self.members.remove(member)
            self.world.leave(member.caller)

    def die(self) -> None:
        member = self.any()
        if member is not None and self.rng.random() < 0.3:
            self.tell(f"{member.name} dies")
            self.members.remove(member)

    def restart(self) -> None:
        member = self.any()
        if member is not None and member.instance_id is not None:
            self.tell(f"{member.name} restarts")
            self.members.remove(member)
            self.members.append(SimulatedMember(member.name, member.instance_id))

    def lose_answer(self) -> None:
        """A connection breaks while its client waits."""
        member = self.any()
        if member is not None and (member.joining or member.syncing):
            self.tell(f"{member.name} hears no answer")
            member.joining = member.syncing = None
            member.joined, member.owns = None, frozenset()

    def refuse(self) -> None:
        """Nothing can be appended for a moment, in which somebody tries."""
        self.tell("nothing can be appended")
        self.world.refuse = ErrorCode.coordinator_not_available
        self.save()
        self.step()
        self.world.refuse = None

    def crash(self) -> None:
        """Another coordinates: what was acknowledged is there, what waits perhaps."""
        if self.rng.random() < 0.4:
            kept = self.rng.randint(0, len(self.world.writing))
            self.tell(f"another node coordinates, {kept} of {len(self.world.writing)} kept")
            old = self.world.coordinator
            self.world.crash(kept)
            self.world.carry_out(old.close())
            for member in self.members:
                member.commit = None

    # What must hold

    def look(self) -> None:
        for member in self.members:
            if member.commit is not None and member.commit[1].is_answered:
                (offset, token), member.commit = member.commit, None
                (code,) = token.result.values()
                if code is NONE:
                    self.acknowledged = max(self.acknowledged, offset)
        found = self.world.committed()
        known = found if isinstance(found, int) and not isinstance(found, ErrorCode) else 0
        if known < self.acknowledged:
            raise Broken(f"offset {known} is committed, {self.acknowledged} was acknowledged")

    def calm(self) -> None:
        """Nothing fails any more: in the end every partition has one owner, if there are any."""
        self.world.commits = True
        self.world.commit_log()
        self.tell("calm")
        for _ in range(3 * (REBALANCE_MS + SESSION_MS) // BEAT_MS):
            for member in self.members:
                self.go_on(member)
                self.beats(member)
            self.look()
            self.world.wait(BEAT_MS)
        owned = sorted(number for member in self.members for number in member.owns)
        wanted = list(range(PARTITIONS)) if self.members else []
        if owned != wanted:
            raise Broken(f"in the end {owned} are owned")
        state = self.world.state()
        if state not in (("Stable",) if self.members else ("Empty", None)):
            raise Broken(f"in the end the group is {state}")
