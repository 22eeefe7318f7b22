"""Transactions: all of a committed one is read, nothing of an aborted one."""

from typing import Any, Final

from compatibility.checks.check import same
from compatibility.outcome import Failed, NotOffered
from compatibility.program import Program, Record
from compatibility.scene import Scene, value, values

EACH: Final = 40
"""Records of a transaction."""
READS_ONLY: Final = "reads them; it has no call that writes them"


def transactions(scene: Scene) -> str:
    """Two while all nodes run; one whose coordinator is killed in its middle, one after that."""
    topic = scene.topic()
    writer, note = _writer(scene, topic)
    reader = scene.start("consume", topic=topic, partition=0, offset=0, committed=True)
    writer.run("commit", values(0, EACH))
    writer.run("abort", values(EACH, 2 * EACH))
    found = reader.records(EACH)
    writer.begin(values(2 * EACH, 3 * EACH - EACH // 2))
    scene.cluster.crash(scene.cluster.transaction_coordinator(writer.name))
    try:
        writer.send(values(3 * EACH - EACH // 2, 3 * EACH))
        writer.end("commit")
        writer.run("abort", values(3 * EACH, 4 * EACH))
        found += reader.records(EACH)
    finally:
        scene.cluster.restore()
    writer.finish()
    scene.publish(topic, [value(4 * EACH)])
    found += reader.records(1)
    same(reader.finish(), [], "more than what is committed")
    _judge(found)
    if scene.end(topic) < 4 * EACH + 1:
        raise Failed(f"the log ends at {scene.end(topic)}: what was aborted never came")
    return note


class _Writer:
    """A client program, asked for one step after the other."""

    def __init__(self, program: Program, name: str) -> None:
        self.name = name
        """Its transactional id."""
        self._program = program

    def run(self, ending: str, lines: list[str]) -> None:
        self.begin(lines)
        self.end(ending)

    def begin(self, lines: list[str]) -> None:
        self._ask("begin")
        self.send(lines)

    def send(self, lines: list[str]) -> None:
        self._ask("send", values=lines)

    def end(self, ending: str) -> None:
        self._ask(ending)

    def finish(self) -> None:
        self._program.finish()

    def _ask(self, op: str, **arguments: Any) -> None:
        try:
            self._program.ask({"op": op, **arguments})
        except Failed as failed:
            raise Failed(f"{op}: {failed}") from None


def _writer(scene: Scene, topic: str) -> tuple[_Writer, str]:
    """The client's, or of one that only reads, the judge's; and what to tell of that."""
    name = f"{topic}-t"
    ask = {"topic": topic, "partition": 0, "transactional_id": name}
    program = scene.start("transact", **ask)
    try:
        ready = program.line()
    except NotOffered:
        program, note = scene.start_judge("transact", **ask), READS_ONLY
        ready = program.line()
    else:
        note = ""
    if ready is None:
        raise Failed("it ended before a transaction began")
    return _Writer(program, name), note


def _judge(found: list[Record]) -> None:
    """The values in order. Offsets have gaps, where aborted records and markers are."""
    wanted = [*values(0, EACH), *values(2 * EACH, 3 * EACH), value(4 * EACH)]
    same([it.value for it in found], wanted, "values of committed records")
    offsets = [it.offset for it in found]
    same(offsets, sorted(set(offsets)), "offsets")
