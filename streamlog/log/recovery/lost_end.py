"""Whether a log has lost its end, of which others may have been told that it is here.

Once a log is opened, its files tell no more that there was more in it: what was damaged is cut off,
what is missing is made again. A node that is killed before the controller has heard of the loss must
not count as in sync at its next start. So a small file beside the log says it, before anything
is cut or made; it goes when others count without this replica.

Where there are no others, the records are gone, and their offsets are given to later ones. The file
then says which those were, until an operator removes it: a restart must not hide the loss.
"""

import logging
from typing import Final, NamedTuple

from streamlog.condition import MAKE_ROOM, Condition
from streamlog.errors import StorageFull
from streamlog.log.sidecar_files import SidecarFiles

logger = logging.getLogger(__name__)

LOST_END_NOT_NOTED: Final = Condition(
    "SL-0315",
    "lost end not noted",
    MAKE_ROOM + "; a node that is killed now forgets what its log has lost",
    meaning="A log has lost its end, and the file that says so could not be written.",
)

FILE_NAME: Final = "lost-end"
_NOTED: Final = "until"
_GONE: Final = "gone"


class Gone(NamedTuple):
    """Records that were acknowledged, and that no replica has any more."""

    offset: int
    end_offset: int
    """As far as that is known; where it is not, it is ``offset``."""

    def __str__(self) -> str:
        if self.end_offset <= self.offset:
            return f"from offset {self.offset} on, not known how many"
        if self.end_offset == self.offset + 1:
            return f"offset {self.offset}"
        return f"offsets {self.offset} to {self.end_offset - 1}"


class LostEnd:
    """One log's. Single owner; its methods block, and raise Unavailable."""

    def __init__(self, beside: SidecarFiles) -> None:
        self.is_noted = False
        self.gone: Gone | None = None
        self.path = f"{beside.directory}/{FILE_NAME}"
        self._until = 0
        """So far the log had reached, as far as that is known."""
        self._is_stored = False
        """The file names the records that are gone. The absence of a file that was never written
        acknowledges nothing.
        """
        self._beside = beside

    def load(self) -> None:
        """A line that cannot be read counts as a lost end: that is careful."""
        for line in self._beside.read(FILE_NAME).decode(errors="replace").splitlines():
            name, _, rest = line.partition(" ")
            numbers = [int(it) for it in rest.split() if it.isdecimal()]
            if name == _GONE and len(numbers) == len(Gone._fields):
                self.gone, self._is_stored = Gone(*numbers), True
            else:
                self.is_noted = True
                self._until = max([self._until, *numbers])

    def note(self, until: int = 0) -> None:
        """Durable when this returns, unless the disk is full, which is no reason not to open the
        log: then only this process knows. ``until``: so far it had reached, if that is known.
        """
        if self.is_noted and until <= self._until:
            return
        self._until = max(self._until, until)
        try:
            self._write(is_noted=True)
        except StorageFull as error:
            logger.warning(LOST_END_NOT_NOTED, extra={"error": str(error)})
        else:
            self.is_noted = True

    def forget(self) -> None:
        """Others have what was lost here. A power cut may bring it back: the next start is careful
        once more then.
        """
        if not self.is_noted:
            return
        self._until = 0
        if self.gone is None:
            self._beside.remove(FILE_NAME)
        else:
            self._write(is_noted=False)
        self.is_noted = False

    def settle(self, end_offset: int) -> Gone:
        """No other replica has what was behind ``end_offset``. Known to this process also where it
        cannot be written.
        """
        lost, self._until = Gone(end_offset, max(end_offset, self._until)), 0
        if self.gone is not None:  # of an earlier time, and no operator has confirmed it yet
            before = self.gone
            lost = Gone(min(before.offset, end_offset), max(before.end_offset, lost.end_offset))
        self.gone, self._is_stored = lost, False
        self.store()
        return lost

    def store(self) -> None:
        """Write down which records are gone, unless the file says so already."""
        if self.gone is not None and not self._is_stored:
            self._write(is_noted=False)
            self.is_noted = False

    def is_acknowledged(self) -> bool:
        """An operator has seen which records are gone, and has removed the file. From any thread."""
        return self._is_stored and not self._beside.read(FILE_NAME)

    def _write(self, *, is_noted: bool) -> None:
        lines = [f"{_NOTED} {self._until}\n"] if is_noted else []
        if self.gone is not None:
            lines.append(f"{_GONE} {self.gone.offset} {self.gone.end_offset}\n")
        self._beside.write(FILE_NAME, "".join(lines).encode())
        self._is_stored = self.gone is not None
