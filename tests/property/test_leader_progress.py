"""LeaderProgress against a twin that computes everything anew from all it ever heard."""

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.model import NodeId
from streamlog.replication.leader import LeaderProgress

ME = NodeId(1)
OTHERS = st.sampled_from([NodeId(2), NodeId(3), NodeId(4)])

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 5)),
        st.tuples(st.just("sync"), st.integers(0, 5)),
        st.tuples(st.just("fetch"), OTHERS, st.integers(0, 40)),
        st.tuples(st.just("isr"), st.sets(OTHERS)),
    ),
    max_size=60,
)


class Twin:
    """What each replica reported last since it left the ISR, and the largest minimum ever."""

    def __init__(self) -> None:
        self.log_end = self.synced_end = self.high_watermark = 0
        self.fetched: dict[NodeId, int] = {}
        self.isr = {ME}

    def look(self) -> int:
        ends = [self.fetched.get(node, 0) for node in self.isr if node != ME]
        self.high_watermark = max(self.high_watermark, min([self.synced_end, *ends]))
        return self.high_watermark


@settings(max_examples=300, deadline=None)
@given(steps)
def test_high_watermark(script: list[tuple[object, ...]]) -> None:
    progress, twin = LeaderProgress(ME, (ME,), start_offset=0), Twin()
    for step in script:
        match step:
            case ("append", int(count)):
                twin.log_end += count
                got = progress.local(twin.log_end, twin.synced_end)
            case ("sync", int(count)):
                twin.synced_end = min(twin.synced_end + count, twin.log_end)
                got = progress.local(twin.log_end, twin.synced_end)
            case ("fetch", int(node), int(offset)):
                if offset <= twin.log_end:
                    twin.fetched[NodeId(node)] = offset
                got = progress.follower(NodeId(node), offset)
            case ("isr", set(others)):
                for node in twin.isr - {ME, *others}:
                    twin.fetched.pop(node, None)
                twin.isr = {ME, *others}
                got = progress.set_isr(twin.isr)
        before = twin.high_watermark
        assert got == twin.look() >= before
        assert progress.high_watermark <= twin.log_end
