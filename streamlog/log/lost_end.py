"""Whether a log has lost its end, of which others may have been told that it is here.

Once a log is opened, its files tell no more that there was more in it: what was damaged is cut off,
what is missing is made anew. A node that is killed before the controller has heard of the loss must
not count as in sync at its next start. So a small file beside the log says it, before anything
is cut or made; it goes when others count without this replica.
"""

import logging
from typing import Final

from streamlog.errors import StorageFull
from streamlog.log.sidecar_files import SidecarFiles

logger = logging.getLogger(__name__)

FILE_NAME: Final = "lost-end"


class LostEnd:
    """One log's. Single owner; its methods block, and raise Unavailable."""

    def __init__(self, beside: SidecarFiles) -> None:
        self.is_noted = False
        self._beside = beside

    def load(self) -> None:
        self.is_noted = bool(self._beside.read(FILE_NAME))

    def note(self) -> None:
        """Durable when this returns, unless the disk is full, which is no reason not to open the
        log: then only this process knows.
        """
        if self.is_noted:
            return
        try:
            self._beside.write(FILE_NAME, b"1\n")
        except StorageFull as error:
            logger.warning("lost end not noted", extra={"error": str(error)})
        else:
            self.is_noted = True

    def forget(self) -> None:
        """A power cut may bring it back: the next start is careful once more then."""
        if self.is_noted:
            self._beside.remove(FILE_NAME)
            self.is_noted = False
