"""Any number of ordering nodes make the chain that the naive twin makes, byte by byte."""

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlog.ledger.core.chain import find_genesis
from streamlog.ledger.core.encoding import decode_block, encode_block
from streamlog.ledger.core.verifier import verify_chain
from streamlog.record.codec import Record
from tests.oracles.offline_cut import cut_stream
from tests.ordering_node import Crashed, OrderingNode
from tests.property.ledger_strategies import LedgerStream, ledger_streams

NODES = 200
quick = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
slow = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(stream=ledger_streams())
def test_a_stream_cut_offline_is_the_naive_chain(stream: LedgerStream) -> None:
    genesis = find_genesis(stream.records)
    assert genesis is not None
    assert [encode_block(block) for block in cut_stream(genesis, stream.records)] == stream.blocks


@quick
@given(stream=ledger_streams())
def test_what_is_cut_is_verified(stream: LedgerStream) -> None:
    report = verify_chain(stream.blocks, channel="c")
    blocks = [decode_block(block) for block in stream.blocks]
    assert report.height == len(blocks)
    assert report.tip == blocks[-1].hash.hex()
    counts = [block.header.record_count for block in blocks if not block.is_configuration]
    assert (report.records, report.configurations) == (sum(counts), len(blocks) - len(counts))


@slow
@given(stream=ledger_streams(), seed=st.integers(0, 2**32))
def test_two_hundred_nodes_make_one_chain(stream: LedgerStream, seed: int) -> None:
    """Each reads by its own leave, has its own timers, and dies wherever it likes."""
    rng = Random(seed)
    genesis = find_genesis(stream.records)
    assert genesis is not None
    for _ in range(NODES):
        node = Erratic(stream.records, Random(rng.random()))
        assert node.play() == stream.blocks


class Erratic:
    """An ordering node with a temper."""

    def __init__(self, records: list[Record], rng: Random) -> None:
        genesis = find_genesis(records)
        assert genesis is not None
        self.records = records
        self.rng = rng
        self.run_max = rng.choice((1, 2, 5, 20, 100))
        self.mortality = rng.choice((0.0, 0.01, 0.1))
        self.node = OrderingNode(genesis, self.fate)

    def fate(self) -> None:
        if self.rng.random() < self.mortality:
            raise Crashed

    def play(self) -> list[bytes]:
        end = self.records[-1].offset + 1
        while self.node.next_offset < end:
            try:
                self.act()
            except Crashed:
                self.node.restart()
        return self.node.kept

    def act(self) -> None:
        """One read, which may begin before what is wanted, as whole batches do; or a time-out."""
        if self.rng.random() < 0.2:
            self.node.expire(len(self.node.kept) + self.rng.randint(-1, 1))
            return
        following = [n for n, r in enumerate(self.records) if r.offset >= self.node.next_offset]
        start = max(0, following[0] - self.rng.choice((0, 0, 1, 3)))
        end = following[0] + self.rng.randint(1, self.run_max)
        self.node.consume(self.records[start:end], has_more=end < len(self.records))
