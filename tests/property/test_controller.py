"""A controller that is asked for anything, against a cluster whose copies are lists of records."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from streamlog.errors import NodeIdTaken
from streamlog.metadata import commands as c
from streamlog.metadata.controller import Decision, decide, next_moves
from streamlog.metadata.controller.self_healing import DiskRoom, Healing
from streamlog.metadata.image.metadata_image import MetadataImage, NodeLoad
from streamlog.metadata.image.records import decode_record, encode_record
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from tests.property.controller_model import (
    MACHINES,
    NAMES,
    NODES,
    PARTITIONS_MAX,
    RACKS,
    ControllerModel,
    Folder,
    Key,
    Process,
)

nodes = st.sampled_from(NODES)
names = st.sampled_from(NAMES)
partitions = st.integers(0, PARTITIONS_MAX - 1)
configs = st.builds(
    lambda name, count, replicas, min_isr, sync, unclean: StreamConfig.of(
        name=name, partitions=count, replicas=replicas, min_isr=min(min_isr, replicas), sync=sync,
        unclean_election=unclean,
    ),
    names,
    st.integers(1, PARTITIONS_MAX),
    st.sampled_from([1, 2, 3, 3]),
    st.integers(1, 3),
    st.sampled_from([None, "os"]),
    st.sampled_from([False, False, True]),
)  # fmt: skip


class ControllerMachine(ControllerModel):
    """Whatever nodes, operators and leaders may ask for, in any order."""

    # Rules: nodes

    @initialize(count=st.integers(2, 5), configs=st.lists(configs, max_size=2))
    def begin(self, count: int, configs: list[StreamConfig]) -> None:
        for node in NODES[:count]:
            self.start(node, torn=False, ready=True, sync="commit")
        for config in configs:
            self.create(config)

    @rule()
    def recover(self) -> None:
        """Every node runs, and whoever has fallen silent is heard of."""
        for node in sorted(self.image.nodes):
            if not self.is_present(node):
                self.start(node, torn=False, ready=True, sync="commit")
            self.beat(node)

    @rule(
        node=nodes, torn=st.booleans(), ready=st.booleans(),
        sync=st.sampled_from(["commit", "os"]), keeps_copy=st.booleans(),
    )  # fmt: skip
    def start(
        self, node: NodeId, torn: bool, ready: bool, sync: str, keeps_copy: bool = True
    ) -> None:
        """A process, perhaps instead of one before it, whose death nobody noticed.

        Its folder may have been copied before.
        """
        self.number += 1
        if keeps_copy:
            self.backups[node] = self.copy_of(node)
        process = Process(self.number, self.directories[node])
        self.processes[node] = process
        self.stamps[node] = (*self.stamps[node], UUID(int=process.number))
        if torn:
            self.tear(node, sync)
        command = c.RegisterNode(
            node_id=node, incarnation=UUID(int=process.number),
            directory_id=UUID(int=node * 1000 + process.directory), host="h", port=node,
            rack=RACKS[node], machine=MACHINES.get(node), stamps=self.stamps[node], tail_lost=torn,
            sync=sync,
        )  # fmt: skip
        decision = self.register(command)
        if decision is None:
            del self.processes[node]
            return
        process.epoch = int(decision.result["node_epoch"])
        assert self.image.nodes[node].epoch == process.epoch
        if ready:
            self.beat(node)

    def register(self, command: c.RegisterNode) -> Decision | None:
        """What the answer says to be lost is no longer looked for."""
        self.live.discard(command.node_id)
        probe = decide(
            self.image, command, now_ms=0, new_id=UUID(int=0), live=frozenset(self.live),
            heard_of=frozenset(self.live - self.hearsay),
        )  # fmt: skip
        for name, number in [*probe.result["tail_lost"], *probe.result["data_lost"]]:
            copies = self.copies_of(Key(self.image.streams[name].stream_id, number))
            copies.committed = list(copies.logs.get(command.node_id, []))
        return self.ask(command)

    def tear(self, node: NodeId, sync: str) -> None:
        for name, key, _ in self.places():
            if (self.image.streams[name].config.sync or sync) != "commit":
                log = self.copies_of(key).logs.get(node, [])
                del log[len(log) // 2 :]

    @rule(node=nodes, seldom=st.integers(0, 3))
    def wipe(self, node: NodeId, seldom: int) -> None:
        """The process is dead, its folder another one."""
        if seldom:
            return
        self.processes.pop(node, None)
        self.directories[node] += 1
        self.stamps[node] = ()
        for copies in self.copies.values():
            copies.logs.pop(node, None)

    @rule(node=nodes, copies=st.booleans(), is_told=st.booleans())
    def stamp(self, node: NodeId, copies: bool, is_told: bool) -> None:
        """A running node's folder is stamped; it may have been copied before."""
        process = self.processes.get(node)
        if process is None or not self.is_present(node):
            return
        copy = self.copy_of(node)
        self.number += 1
        self.stamps[node] = (*self.stamps[node], UUID(int=self.number))
        if is_told:
            command = c.StampFolder(
                node_id=node, node_epoch=process.epoch, stamps=self.stamps[node]
            )
            assert self.ask(command) is not None
            if copies:
                self.backups[node] = copy

    def copy_of(self, node: NodeId) -> Folder:
        logs = {key: list(it.logs[node]) for key, it in self.copies.items() if node in it.logs}
        return Folder(self.directories[node], self.stamps[node], logs)

    @rule(node=nodes)
    def put_copy_back(self, node: NodeId) -> None:
        """Of the same folder: another one is like a disk that was lost."""
        folder = self.backups.get(node)
        if folder is None or folder.directory != self.directories[node]:
            return
        self.processes.pop(node, None)
        self.stamps[node] = folder.stamps
        for key, copies in self.copies.items():
            copies.logs.pop(node, None)
            if key in folder.logs:
                copies.logs[node] = list(folder.logs[key])

    @rule(node=nodes, copied_while_running=st.booleans())
    @precondition(lambda self: self.backups)
    def lose_power(self, node: NodeId, copied_while_running: bool) -> None:
        """Of all nodes at once; the first to come back has an older copy of its folder."""
        if copied_while_running:
            self.stamp(node, copies=True, is_told=True)
            self.catch_up()
        self.processes.clear()
        self.change_the_controller()
        self.put_copy_back(node)
        self.start(node, torn=False, ready=True, sync="commit", keeps_copy=False)

    @rule(node=nodes)
    def start_as_another_while_alive(self, node: NodeId) -> None:
        if node not in self.live or self.image.nodes[node].fenced:
            return
        command = c.RegisterNode(
            node_id=node, incarnation=UUID(int=1 << 64), directory_id=UUID(int=7), host="h", port=1
        )
        try:
            decide(
                self.image, command, now_ms=0, new_id=UUID(int=0), live=frozenset(self.live),
            )  # fmt: skip
        except NodeIdTaken:
            return
        raise AssertionError("two nodes of one id")

    @rule(
        node=nodes,
        offline=st.lists(st.tuples(names, partitions), max_size=3),
        full=st.booleans(),
    )
    def beat(
        self, node: NodeId, offline: Sequence[tuple[str, int]] = (), full: bool = False
    ) -> None:
        process = self.processes.get(node)
        if process is None:
            return
        command = c.Heartbeat(
            node_id=node, node_epoch=process.epoch, offset=self.image.offset,
            offline=tuple(offline), full=full,
        )  # fmt: skip
        decision = self.ask(command, elects={node} if self.is_present(node) else None)
        assert (decision is not None) == self.is_present(node)
        if decision is not None:
            assert decision.result["fenced"] == self.image.nodes[node].fenced
            self.live.add(node)
            self.hearsay.discard(node)

    @rule()
    def change_the_controller(self) -> None:
        """The new one gives everybody a session who is not fenced."""
        self.live = {it.node_id for it in self.image.nodes.values() if not it.fenced}
        self.hearsay = set(self.live)

    @rule(node=nodes)
    def die(self, node: NodeId) -> None:
        self.processes.pop(node, None)

    @rule(node=nodes)
    def fall_silent(self, node: NodeId) -> None:
        self.live.discard(node)

    @rule(node=nodes, stale=st.booleans())
    def fence(self, node: NodeId, stale: bool) -> None:
        known = self.image.nodes.get(node)
        if known is not None:
            self.live.discard(node)
            self.ask(c.FenceNode(node_id=node, node_epoch=known.epoch - stale))
            assert stale or self.image.nodes[node].fenced

    @rule(node=nodes)
    def stop(self, node: NodeId) -> None:
        process = self.processes.get(node)
        if process is None or not self.is_present(node):
            return
        self.ask(c.StopNode(node_id=node, node_epoch=process.epoch))
        self.beat(node)
        assert self.image.nodes[node].fenced

    @rule(node=nodes, undo=st.booleans())
    def drain(self, node: NodeId, undo: bool) -> None:
        self.ask(c.DrainNode(node_id=node, undo=undo))

    @rule(node=nodes, seldom=st.integers(0, 3))
    def remove(self, node: NodeId, seldom: int) -> None:
        if not seldom and self.ask(c.RemoveNode(node_id=node)) is not None:
            assert all(node not in partition.replicas for _, _, partition in self.places())
            self.live.discard(node)

    # Rules: streams and partitions

    @rule(config=configs)
    def create(self, config: StreamConfig) -> None:
        self.ask(c.CreateStream(config=config))

    @rule(config=configs)
    def update(self, config: StreamConfig) -> None:
        self.ask(c.UpdateStream(config=config))

    @rule(data=st.data(), wanted=configs)
    @precondition(lambda self: self.image.streams)
    def resize(self, data: st.DataObject, wanted: StreamConfig) -> None:
        """More partitions, or another number of replicas."""
        known = self.image.streams[data.draw(st.sampled_from(sorted(self.image.streams)))].config
        if data.draw(st.booleans()):
            count = max(known.partitions, wanted.partitions)
            change = SettingChange(setting="partitions", text=str(count))
            self.ask(c.AlterStream(name=known.name, changes=(change,)))
            return
        config = known.changed(replicas=wanted.replicas, min_isr=wanted.min_isr)
        self.ask(c.UpdateStream(config=config))

    @rule(name=names, seldom=st.integers(0, 7))
    def delete(self, name: str, seldom: int) -> None:
        if not seldom:
            self.ask(c.DeleteStream(name=name))

    @rule(data=st.data())
    @precondition(lambda self: self.image.streams)
    def move(self, data: st.DataObject) -> None:
        name, key, partition = data.draw(st.sampled_from(list(self.places())))
        known = sorted(self.image.nodes)
        replicas = data.draw(st.permutations(known))[: len(partition.target)]
        command = c.MovePartition(stream=name, partition=key.partition, replicas=tuple(replicas))
        self.ask(command)

    @rule(data=st.data())
    @precondition(lambda self: any(partition.is_moving for _, _, partition in self.places()))
    def cancel(self, data: st.DataObject) -> None:
        moving = [place for place in self.places() if place[2].is_moving]
        name, key, _ = data.draw(st.sampled_from(moving))
        self.ask(c.CancelMove(stream=name, partition=key.partition))

    @rule(data=st.data(), unclean=st.booleans())
    @precondition(lambda self: self.image.streams)
    def elect(self, data: st.DataObject, unclean: bool) -> None:
        name, key, known = data.draw(st.sampled_from(list(self.places())))
        leader = data.draw(st.one_of(st.none(), st.sampled_from(known.replicas)))
        partition = key.partition
        command = c.ElectLeader(stream=name, partition=partition, leader=leader, unclean=unclean)
        decision = self.ask(command)
        if decision is not None:
            now = self.image.streams[name].partitions[partition]
            assert (now.leader, now.leader_epoch) == tuple(decision.result.values())

    @rule()
    def rebalance(self) -> None:
        self.ask(c.RebalanceLeaders())

    @rule()
    def go_on(self) -> None:
        self.apply(next_moves(self.image, frozenset(self.live)), set())
        able = self.able
        for _, _, partition in self.places():
            assert partition.leader != NO_LEADER or able.isdisjoint(partition.isr)

    @rule(free=st.dictionaries(nodes, st.integers(0, 5)), size=st.integers(0, 2))
    def heal(self, free: dict[NodeId, int], size: int) -> None:
        """Every node that is fenced is lost. Nothing goes to where there is no room, or drops what is in sync."""
        lost = {it.node_id for it in self.image.nodes.values() if it.fenced}
        sizes = {TopicPartition(name, key.partition): size for name, key, _ in self.places()}
        room = DiskRoom(free, dict.fromkeys(NODES, sizes))
        before = self.image
        decision = next_moves(before, frozenset(self.live), None, Healing(frozenset(lost), room))
        self.apply(decision, set())
        for name, key, partition in self.places():
            known = before.streams[name].partitions[key.partition]
            if known.leader != NO_LEADER and not before.nodes[known.leader].draining:
                assert set(partition.isr) >= set(known.isr) & set(partition.target)
            if known.leader == NO_LEADER == partition.leader:
                assert partition.target == known.target, "nothing is known of what it lacks"
            drained = any(before.nodes[it].draining for it in known.replicas)
            new = set(partition.adding) - set(known.replicas)
            for node in set() if drained and lost.isdisjoint(known.replicas) else new:
                assert free.get(node, -1) >= size and not before.nodes[node].full

    # Rules: replication

    @rule(data=st.data(), commit=st.booleans())
    @precondition(lambda self: self.led())
    def publish(self, data: st.DataObject, commit: bool) -> None:
        """A record that reaches the leader, and perhaps all that the leader must count."""
        self.publish_to(data.draw(st.sampled_from(self.led()))[1], commit=commit)

    def publish_to(self, key: Key, *, commit: bool) -> None:
        partition, copies = self.now(key)[1], self.copies_of(key)
        if not self.is_present(partition.leader):
            return
        self.number += 1
        copies.logs.setdefault(partition.leader, []).append(self.number)
        counted = set(partition.isr)
        proposal = copies.proposal
        if proposal is not None and proposal.partition_epoch == partition.partition_epoch:
            counted |= {node for node, _, _ in proposal.isr}
        if commit and all(self.is_present(node) for node in counted):
            for node in counted - {partition.leader}:
                self.fetch(key, node, partition.leader)
            copies.committed = list(copies.logs[partition.leader])

    @rule(data=st.data())
    @precondition(lambda self: self.led())
    def propose(self, data: st.DataObject) -> None:
        """Some of the ISR, and others that have caught up; one proposal at a time."""
        _, key, partition = data.draw(st.sampled_from(self.led()))
        if self.copies_of(key).proposal is None:
            self.prepare(key, data.draw(st.sets(st.sampled_from(partition.replicas))))

    def prepare(self, key: Key, wanted: set[NodeId]) -> None:
        name, partition = self.now(key)
        members = [partition.leader]
        for node in sorted(wanted - {partition.leader}):
            if node in partition.isr:
                members.append(node)
            elif self.is_present(node):
                self.fetch(key, node, partition.leader)
                members.append(node)
        self.copies_of(key).proposal = c.IsrChange(
            stream_id=key.stream_id, stream=name, partition=key.partition,
            leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch,
            isr=tuple(
                (node, self.image.nodes[node].epoch, partition.incarnation(node))
                for node in members
            ),
        )  # fmt: skip

    @rule()
    def catch_up(self) -> None:
        """All that run are in sync, as far as the controller agrees; then all is published to."""
        for _, key, partition in self.led():
            if self.copies_of(key).proposal is None:
                self.prepare(key, set(partition.replicas))
                self.conclude(key)
        for _, key, _ in self.led():
            self.publish_to(key, commit=True)

    @rule(data=st.data(), torn=st.booleans(), known=st.booleans())
    @precondition(lambda self: self.led())
    def answer_late(self, data: st.DataObject, torn: bool, known: bool) -> None:
        """A proposal, perhaps without it, is on its way while a replica starts anew."""
        _, key, partition = data.draw(st.sampled_from(self.led()))
        others = [node for node in partition.replicas if node != partition.leader]
        if not others:
            return
        restarted = data.draw(st.sampled_from(others))
        if self.copies_of(key).proposal is None:
            self.prepare(key, set(partition.replicas) - ({restarted} if known else set()))
        self.start(restarted, torn=torn, ready=True, sync="os")
        self.publish_to(key, commit=True)
        self.conclude(key)

    @rule(data=st.data())
    @precondition(lambda self: any(it.proposal for it in self.copies.values()))
    def answer(self, data: st.DataObject) -> None:
        keys = sorted(key for key, it in self.copies.items() if it.proposal)
        self.conclude(data.draw(st.sampled_from(keys)))

    def conclude(self, key: Key) -> None:
        change = self.copies[key].proposal
        assert change is not None
        self.copies[key].proposal = None
        leader = self.image.streams[change.stream].partitions[key.partition].leader
        if leader == NO_LEADER or not self.is_present(leader):
            return
        epoch = self.image.nodes[leader].epoch
        decision = self.ask(c.AlterIsr(node_id=leader, node_epoch=epoch, changes=(change,)))
        assert decision is not None
        (verdict,) = decision.result["verdicts"]
        now = self.image.streams[change.stream].partitions[key.partition]
        if verdict == "granted":
            assert set(now.isr) <= {node for node, _, _ in change.isr}
            assert not decision.records or set(now.isr) <= self.able
        else:
            assert not decision.records

    @rule(data=st.data(), node=nodes)
    @precondition(lambda self: self.led())
    def report(self, data: st.DataObject, node: NodeId) -> None:
        name, key, known = data.draw(st.sampled_from(self.led()))
        process = self.processes.get(node)
        if process is None or node not in known.isr:
            return
        command = c.ReportLeader(
            node_id=node, node_epoch=process.epoch, stream=name, partition=key.partition,
            leader=known.leader, leader_epoch=known.leader_epoch,
        )  # fmt: skip
        self.ask(command)

    # What holds at all times

    @invariant()
    def partitions_are_in_order(self) -> None:
        for name, _, partition in self.places():
            replicas, isr = partition.replicas, partition.isr
            assert partition.leader == NO_LEADER or partition.leader in isr
            assert isr == tuple(node for node in replicas if node in isr)
            assert len(set(replicas)) == len(replicas)
            assert not set(partition.adding) & set(partition.removing)
            assert set(partition.adding) | set(partition.removing) <= set(replicas)
            assert replicas == (*partition.target, *partition.removing)
            assert len(partition.target) == self.image.streams[name].config.replicas
            assert set(replicas) <= set(self.image.nodes)
        for stream in self.image.streams.values():
            assert len(stream.partitions) == stream.config.partitions

    @invariant()
    def whoever_is_in_sync_has_what_was_committed(self) -> None:
        for _, key, partition in self.places():
            copies = self.copies_of(key)
            for node in filter(self.is_present, partition.isr):
                log = copies.logs.get(node, [])
                assert log[: len(copies.committed)] == copies.committed

    @invariant()
    def fenced_nodes_lead_nothing(self) -> None:
        leaders = {partition.leader for _, _, partition in self.places()}
        assert not any(
            node.fenced and node.node_id in leaders for node in self.image.nodes.values()
        )

    @invariant()
    def loads_are_what_a_count_says(self) -> None:
        replicas, leaders = Counter[NodeId](), Counter[NodeId]()
        for _, _, partition in self.places():
            replicas.update(partition.replicas)
            leaders[partition.leader] += 1
        assert self.image.leaderless == leaders.pop(NO_LEADER, 0)
        counted = {node: NodeLoad(replicas[node], leaders[node]) for node in replicas}
        assert dict(self.image.loads) == counted

    def teardown(self) -> None:
        replayed = MetadataImage("c")
        for offset, data in enumerate(self.log):
            replayed = replayed.apply(decode_record(data), offset=offset, epoch=1)
        assert replayed == self.image
        snapshot = [encode_record(record) for record in self.image.records()]
        restored = MetadataImage("c").restored(
            map(decode_record, snapshot), offset=self.image.offset, epoch=self.image.epoch
        )
        assert restored == self.image


ControllerMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None
)
TestController = ControllerMachine.TestCase


@pytest.mark.slow
def test_much_longer() -> None:
    run_state_machine_as_test(
        ControllerMachine,
        settings=settings(max_examples=3_000, stateful_step_count=80, deadline=None),
    )
