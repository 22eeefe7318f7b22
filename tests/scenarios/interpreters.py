"""Which interpreter plays the scenarios of which folder."""

from pathlib import Path
from typing import Final

from tests.scenarios.raft_cores import RaftScenario
from tests.scenarios.replication_cores import ReplicationScenario
from tests.scenarios.script import Interpreter, played

FOLDER: Final = Path(__file__).parent
INTERPRETERS: Final[dict[str, type[Interpreter]]] = {
    "raft": RaftScenario,
    "replication": ReplicationScenario,
}
SCENARIOS: Final = sorted(path for name in INTERPRETERS for path in (FOLDER / name).glob("*.txt"))


def play(path: Path) -> str:
    """The scenario with the traces that the core leaves now."""
    return played(path.read_text(), INTERPRETERS[path.resolve().parent.name]().run)
