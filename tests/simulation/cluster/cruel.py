"""Stories in which the worst comes again and again: what takes a rare chain of events to go wrong
goes wrong in a few of them. The worlds, and what is checked, are the same.
"""

from unittest.mock import patch

from streamlog.metadata.quorum import metadata_replica
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.raft.events import Role
from tests.simulation.cluster.cluster_world import ClusterWorld
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.links import Weather
from tests.simulation.cluster.member import Member
from tests.simulation.cluster.quorum_world import QuorumWorld
from tests.simulation.cluster.settings import replication_section

AT_ONCE_US = 1_000
POWER_SHARE = 0.005
"""Of the events in the midst of syncs."""


class VotersRestart(QuorumWorld):
    """Whoever has just voted is killed, and is back before all who stand have been heard."""

    VOTERS: tuple[int, ...] = (2, 3, 3, 4, 5)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.troubles.kinds = [self._be_slow, *2 * [self.troubles.isolate]]

    def _be_slow(self) -> None:
        """So that several stand in one epoch."""
        half_us = self.config.raft.election_timeout_ms * 1_000 // 2
        self.links.weather = Weather(slow=0.5, duplication=0.1, delay_us_max=half_us)

    def _strike_at(self, member: Member) -> None:
        if not self.troubles.over and self.rng.random() < 0.3:
            self._kill_soon(member.host, down_us=AT_ONCE_US)

    def _kill_soon(self, host: Host, *, down_us: int) -> None:
        delay_us = self.rng.randint(0, 3_000)
        self.events.after(delay_us, lambda: self.troubles.kill(host, down_us=down_us))


class LeadersDie(VotersRestart):
    """Whoever leads is killed before the others have what it writes, or just as that is committed:
    records of old leaders lie about on one, and are spread by the next.
    """

    VOTERS = (3,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.troubles.kinds = [self._be_fair]
        self._share = self.rng.choice((0.2, 0.4, 0.6))

    def run(self) -> None:
        """A follower that dies has fetched some of what it lacks, not all at once."""
        with patch.object(metadata_replica, "FETCH_BYTES", 1):
            super().run()

    def _be_fair(self) -> None:
        self.links.weather = Weather(slow=0.0)

    def _strike_at(self, member: Member) -> None:
        is_leader = member.replica.raft.role is Role.LEADER
        if self.troubles.over or not is_leader or self.rng.random() >= self._share:
            return
        timeout_us = 1_000 * self.config.raft.election_timeout_ms
        self._kill_soon(member.host, down_us=self.rng.randint(1, 6) * timeout_us)
        for host in self.hosts.values():
            if host is not member.host and self.rng.random() < 0.3:
                self._kill_soon(host, down_us=AT_ONCE_US)


class FollowersLag(ClusterWorld):
    """Followers fall behind, take their time to catch up, and leaders die meanwhile."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.replication = replication_section(fetch_bytes_max=600)
        troubles = self.troubles
        troubles.kinds = [troubles.stop, troubles.isolate, *2 * [troubles.kill]]


class FewReplicasLosePower(ClusterWorld):
    """Streams with one replica or two, none of which anybody else has in full."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sync = "commit"
        self.troubles.kinds = [self._be_slow, self.troubles.power]

    def _be_slow(self) -> None:
        if len(self._created) == len(self.configs):
            for host in self.hosts.values():
                host.slow_disk = True

    def _look(self) -> None:
        """The power goes while a sync runs, during which more is written."""
        host = Host.latest
        super()._look()
        if host is None or not host.slow_disk or self.troubles.over or not host.is_up:
            return
        syncs = [it for it in host.process.partitions() if it.state.syncing is not None]
        if syncs and self.rng.random() < POWER_SHARE:
            self.troubles.power(host)

    def _make_configs(self, nodes: int) -> list[StreamConfig]:
        return [
            StreamConfig.of(name="a", replicas=1, partitions=2),
            StreamConfig.of(name="b", replicas=2, min_isr=1),
        ]
