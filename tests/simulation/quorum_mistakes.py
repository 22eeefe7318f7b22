"""Known mistakes of metadata quorums, each planted into streamlog's own code, one at a time."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from streamlog.errors import StreamlogError
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import VotersChanged
from streamlog.metadata.quorum import voter_sets
from streamlog.metadata.quorum.metadata_replica import MetadataReplica, Outcome
from streamlog.metadata.quorum.store import StoredBatch
from streamlog.model import NodeId
from streamlog.raft.candidate import Candidacy
from streamlog.raft.events import Event
from streamlog.raft.node import RaftNode
from streamlog.raft.voters import ReplicaKey, VoterSet


def keep_what_was_not_written_among_what_waits(patch: pytest.MonkeyPatch) -> None:
    """It is granted when later records at its offsets are committed."""

    def keep(self: MetadataReplica, error: StreamlogError) -> list[Outcome]:
        return []

    patch.setattr(MetadataReplica, "_refuse_unwritten", keep)


def change_two_voters_at_once(patch: pytest.MonkeyPatch) -> None:
    """The last change need not be committed, nor anything of the leader's epoch."""

    def rash(self: RaftNode, *, voters_offset: int = -1) -> str | None:
        return None if self._leader_state is not None else "not the leader"

    patch.setattr(RaftNode, "change_voters_refusal", rash)


def judge_by_the_committed_voters(patch: pytest.MonkeyPatch) -> None:
    """Records that are in the log, or decided in the same go, do not count."""
    is_written = False
    property_ = MetadataReplica.newest
    assert isinstance(property_, property)
    assert property_.fget is not None
    inner: Callable[[MetadataReplica], MetadataImage] = property_.fget

    def blind(self: RaftNode, *, voters_offset: int = -1) -> str | None:
        return None if self._leader_state is not None and self.is_active else "not the controller"

    def newest(self: MetadataReplica) -> MetadataImage:
        known: MetadataImage = inner(self)
        if is_written:
            return known
        return replace(known, voters=self.image.voters, returning=self.image.returning)

    def take_in(self: MetadataReplica, batch: StoredBatch) -> list[Event]:
        """What is written is right."""
        nonlocal is_written
        is_written = True
        try:
            return inner_take_in(self, batch)
        finally:
            is_written = False

    inner_take_in = MetadataReplica._take_in
    patch.setattr(RaftNode, "change_voters_refusal", blind)
    patch.setattr(RaftNode, "_check_majorities", lambda *_: None)
    patch.setattr(MetadataReplica, "_take_in", take_in)
    patch.setattr(MetadataReplica, "newest", property(newest))


def replace_a_folder_in_one_step(patch: pytest.MonkeyPatch) -> None:
    """The old one is removed and the new one added in one record."""

    def tended(
        image: MetadataImage, replaced: Iterable[ReplicaKey], _caught_up: object
    ) -> tuple[VotersChanged, ...]:
        wanted = voter_sets.with_directories(image.voters, replaced)
        return () if wanted == image.voters else (VotersChanged.of(wanted),)

    patch.setattr(voter_sets, "tended_voters", tended)
    patch.setattr(RaftNode, "_check_majorities", lambda *_: None)


def found_a_quorum_by_a_majority(patch: pytest.MonkeyPatch) -> None:
    """Configured voters with empty folders are enough, though one that is away knows better."""
    patch.setattr(VoterSet, "majority", property(lambda self: len(self.by_id) // 2 + 1))
    patch.setattr(RaftNode, "_check_first_voters", lambda *_: None)


def count_votes_of_any_folder(patch: pytest.MonkeyPatch) -> None:
    """A folder that was replaced votes on."""

    def votes(self: Candidacy, voters: VoterSet) -> set[NodeId]:
        return {key.node_id for key in self._granted} & voters.ids

    patch.setattr(Candidacy, "_votes", votes)
