"""Fast batches beside a model that remembers every message, and counts again for each answer."""

from dataclasses import dataclass, field
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamlog.ingest.admission.batches.fast_batches import (
    APPEND,
    COMMIT,
    COMMIT_EOB,
    IDLE_MS_MAX,
    PING,
    START,
    TOO_MANY,
    UNKNOWN,
    Answer,
    BatchAck,
    FastBatches,
    FastBatchLimit,
    FlowAck,
    FlowError,
    FlowGap,
    read_reply,
)
from streamlog.ingest.admission.batches.fast_run import FastRun
from streamlog.ingest.admission.refusal import INTERNAL, WRONG_STREAM

IDS: Final = ("a", "b", "c")
NODE_MAX: Final = 2


@dataclass
class Sent:
    """A message of a batch that was taken, or is repeated."""

    number: int
    run: int
    position: int | None
    """In its run; None: it is repeated."""
    first: int = -1
    """What it repeats: an offset."""
    offset: int | None = None
    """None: it is not in the log."""
    is_committed: bool = False


@dataclass
class Batch:
    gap_ok: bool
    flow_max: int
    flow: int
    deadline_ms: int = 0
    last: int = 0
    acked: int = 0
    persisted: int = 0
    commits: bool = False
    repeated_of: int = -1
    sent: list[Sent] = field(default_factory=list)

    @property
    def is_pending(self) -> bool:
        return any(not it.is_committed for it in self.sent)

    @property
    def sequence(self) -> int:
        stored = [it.offset + 1 for it in self.sent if it.is_committed and it.offset is not None]
        return max(stored, default=0)


class Model:
    """One message after the other."""

    def __init__(self) -> None:
        self.batches: dict[str, Batch] = {}
        self.told: list[tuple[str, Answer]] = []
        self.ends: dict[int, int] = {}
        """Where each run that was appended begins."""

    def send(
        self, name: str, number: int, operation: int, gap_ok: bool, flow: int, now_ms: int
    ) -> bool:
        """It is to be judged."""
        self.expire(now_ms)
        batch = self.batches.get(name)
        if batch is None:
            if number != 1 or operation == PING:
                self.told.append((name, UNKNOWN))
                return False
            if len(self.batches) >= NODE_MAX:
                self.told.append((name, TOO_MANY))
                return False
            batch = self.batches[name] = Batch(gap_ok, flow, 1 if self.batches else min(flow, 500))
        batch.deadline_ms = now_ms + IDLE_MS_MAX
        if operation == PING:
            self.ping(name, batch, number)
            return False
        if batch.commits:
            return False
        if number != batch.last + 1:
            self.told.append((name, FlowGap(batch.last + 1, number)))
            if not batch.gap_ok or number <= batch.last:
                batch.commits = True
                self.look(name, batch)
                return False
        if operation == COMMIT_EOB:
            batch.last = number - 1
            batch.commits = True
            self.look(name, batch)
            return False
        batch.last = number
        batch.commits = operation == COMMIT
        if number == 1 and operation != COMMIT:
            self.told.append((name, FlowAck(0, batch.flow)))
        return True

    def expire(self, now_ms: int) -> None:
        for it in [it for it, batch in self.batches.items() if batch.deadline_ms <= now_ms]:
            if not self.batches[it].is_pending:
                del self.batches[it]

    def ping(self, name: str, batch: Batch, number: int) -> None:
        before = len(self.told)
        if number > batch.last:
            self.told.append((name, FlowGap(batch.last + 1, number + 1)))
            before += 1
            if batch.gap_ok and not batch.commits:
                batch.last = number
                if not batch.is_pending:
                    batch.persisted = number
                self.flow(name, batch)
            else:
                batch.commits = True
                self.look(name, batch)
        if len(self.told) == before:
            self.told.append((name, FlowAck(batch.acked, batch.flow)))

    def refuse(self, name: str, number: int, refusal: object) -> None:
        batch = self.batches[name]
        if number == 1 and not batch.gap_ok:
            del self.batches[name]
            self.told.append((name, refusal))  # type: ignore[arg-type]
            return
        self.told.append((name, FlowError(number, refusal)))  # type: ignore[arg-type]
        if not batch.gap_ok or (batch.commits and batch.last == number):
            batch.last, batch.commits = number - 1, True

    def look(self, name: str, batch: Batch) -> None:
        if batch.commits and not batch.is_pending and self.batches.get(name) is batch:
            del self.batches[name]
            if batch.repeated_of >= 0:
                ack = BatchAck(batch.repeated_of + 1, name.encode(), batch.last, True)
            else:
                ack = BatchAck(batch.sequence, name.encode(), batch.last)
            self.told.append((name, ack))

    def flow(self, name: str, batch: Batch) -> None:
        due = 0
        while batch.acked + due + batch.flow <= batch.persisted:
            due += batch.flow
        if due:
            batch.acked += due
            most = min(max(500 // len(self.batches), 1), batch.flow_max)
            if batch.flow < most:
                batch.flow = min(most, batch.flow * 2)
            elif batch.flow > most:
                batch.flow = max(most, batch.flow // 2)
            self.told.append((name, FlowAck(batch.acked, batch.flow)))

    def commit(self, end: int, now_ms: int) -> None:
        for name, batch in list(self.batches.items()):
            runs = sorted(
                {it.run for it in batch.sent if not it.is_committed and it.run in self.ends}
            )
            is_new = False
            for run in runs:
                sent = [it for it in batch.sent if it.run == run]
                waits = max(it.first if it.offset is None else it.offset for it in sent)
                if waits >= end:
                    break
                for it in sent:
                    it.is_committed = is_new = True
                batch.persisted = min(batch.last, sent[-1].number)
            if is_new:
                batch.deadline_ms = max(batch.deadline_ms, now_ms + IDLE_MS_MAX)
                if not batch.is_pending:
                    batch.persisted = batch.last
                self.look(name, batch)
                if name in self.batches and self.batches[name] is batch:
                    self.flow(name, batch)

    def lose_run(self, run: int) -> None:
        mine = {}
        for name, batch in list(self.batches.items()):
            lost = [it for it in batch.sent if it.run == run]
            batch.sent = [it for it in batch.sent if it.run != run]
            if lost:
                mine[name] = batch, lost
        for name, (batch, lost) in mine.items():
            for it in lost:
                if self.batches.get(name) is batch and it.number <= batch.last:
                    self.refuse(name, it.number, INTERNAL)
        for name, (batch, _) in mine.items():
            if self.batches.get(name) is batch and not batch.is_pending:
                batch.persisted = batch.last
                self.look(name, batch)
                if self.batches.get(name) is batch:
                    self.flow(name, batch)

    def fail(self) -> None:
        """What is in the log, and not committed, is lost."""
        for name, batch in list(self.batches.items()):
            runs = {it.run for it in batch.sent if not it.is_committed and it.run in self.ends}
            if runs:
                del self.batches[name]
                self.told.append((name, INTERNAL))

    def append(self, run: int, log_end: int) -> None:
        self.ends[run] = log_end
        for batch in self.batches.values():
            for it in batch.sent:
                if it.run == run and it.position is not None:
                    it.offset = log_end + it.position


def by_batch(told: list[tuple[str, Answer]]) -> dict[str, list[Answer]]:
    """What each publisher is told, in order."""
    found: dict[str, list[Answer]] = {name: [] for name in IDS}
    for name, answer in told:
        found[name].append(answer)
    return found


sends = st.tuples(
    st.just("send"),
    st.sampled_from(IDS),
    st.sampled_from([0] * 12 + [-1, -2, 1, 2]),  # from the number that is expected
    st.sampled_from([APPEND] * 8 + [COMMIT, COMMIT_EOB, PING, PING]),
    st.sampled_from([1, 1, 2, 3, 500]),
    st.booleans(),
    st.sampled_from(["store"] * 8 + ["repeat", "repeat", "refuse"]),
)
others = st.tuples(
    st.sampled_from(
        ["append", "append", "append", "commit", "commit", "refuse run", "wait", "fail"]
    )
)


@given(st.lists(st.one_of(sends, sends, sends, others), max_size=60), st.booleans())
@example(
    [
        ("send", "b", 0, APPEND, 1, True, "store"), ("refuse run",), ("wait",),
        ("send", "a", 0, APPEND, 1, False, "store"), ("wait",), ("send", "b", 0, APPEND, 1, False, "store"),
    ],
    True,
)  # fmt: skip
@settings(max_examples=500, deadline=None)
def test_the_same_as_a_model(steps: list[tuple[object, ...]], follows: bool) -> None:
    """``follows``: the run takes what it can by itself."""
    run, limit, model = FastRun(), FastBatchLimit(NODE_MAX), Model()
    batches = FastBatches(run, limit)
    run.is_open = follows
    told: list[tuple[str, Answer]] = []
    count = log_end = high_watermark = runs = now_ms = 0
    for step in steps:
        match step:
            case ("send", str(name), int(off), int(operation), int(flow), bool(gap_ok), str(fate)):
                known = model.batches.get(name)
                expected = known.last + 1 if known else 1
                number = max(1, expected + off - (operation == PING))
                if number == 1 and operation in (APPEND, COMMIT_EOB):
                    operation = START
                gap_ok = known.gap_ok if known else gap_ok
                mode = "ok" if gap_ok else "fail"
                reply = f"i.{name}.{flow}.{mode}.{number}.{operation}.$FI".encode()
                asked = read_reply(reply)
                assert asked == (name.encode(), flow, gap_ok, number, operation)
                is_judged = model.send(name, number, operation, gap_ok, flow, now_ms)
                if fate == "store" and run.follows(reply, count):
                    assert is_judged
                    model.batches[name].sent.append(Sent(number, runs, count))
                    count += 1
                    continue
                batch = batches.add(asked, reply, now_ms=now_ms)
                assert (batch is not None) == is_judged
                if batch is not None:
                    if fate == "store":
                        batches.stored(batch, asked, count)
                        model.batches[name].sent.append(Sent(number, runs, count))
                        count += 1
                    elif fate == "repeat":
                        first = max(0, log_end + count - 2)
                        batches.repeated(batch, asked, first, count)
                        mine = model.batches[name]
                        if number == 1 and operation == COMMIT and not gap_ok:
                            mine.repeated_of = first
                        mine.sent.append(Sent(number, runs, None, first))
                        if log_end + count == 0:
                            log_end = 1  # there is a first one
                    else:
                        batches.refused(batch, asked, WRONG_STREAM)
                        mine = model.batches[name]
                        model.refuse(name, number, WRONG_STREAM)
                        model.look(name, mine)
            case ("append",):
                batches.appended(log_end)
                model.append(runs, log_end)
                log_end += count
                count, runs = 0, runs + 1
                batches.committed(high_watermark, now_ms)
                model.commit(high_watermark, now_ms)
            case ("commit",):
                high_watermark += max(0, (log_end - high_watermark + 1) // 2)
                batches.committed(high_watermark, now_ms)
                model.commit(high_watermark, now_ms)
            case ("refuse run",):
                batches.not_appended(INTERNAL)
                model.lose_run(runs)
                count, runs = 0, runs + 1
            case ("fail",):
                batches.fail(high_watermark, INTERNAL)
                model.fail()
            case ("wait",):
                now_ms += IDLE_MS_MAX // 2 + 1
                batches.expire(
                    now_ms
                )  # as the node has it do all the time: a run that follows does not look
                model.expire(now_ms)
        for reply, answer in batches.take_answers():
            told.append((reply.split(b".")[1].decode(), answer))
        assert by_batch(told) == by_batch(model.told)
        assert limit.count == len(batches)
    batches.clear(INTERNAL)
    assert (len(batches), limit.count, batches.is_waiting) == (0, 0, False)


@given(st.text("0123456789.$FIokfail", max_size=30), st.booleans())
def test_no_reply_is_an_error(text: str, ends_so: bool) -> None:
    reply = (text + ".$FI" * ends_so).encode(errors="replace")
    asked = read_reply(reply)
    if asked is not None:
        assert asked.number >= 1 and START <= asked.operation <= PING and asked.flow >= 1
    assert not FastRun().follows(reply, 0)
