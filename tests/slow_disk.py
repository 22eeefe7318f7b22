"""The machine's disk, on which what concerns some paths takes as long as a test wants it to."""

import threading

from streamlog.log.storage.disk import OsDisk


class SlowDisk(OsDisk):
    """``hold`` a part of paths; what makes folders or moves them there waits for ``let_go``."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, threading.Event] = {}

    def hold(self, part: str) -> None:
        self._held.setdefault(part, threading.Event())

    def let_go(self, part: str) -> None:
        self._held.pop(part).set()

    def let_all_go(self) -> None:
        for part in tuple(self._held):
            self.let_go(part)

    @property
    def held(self) -> list[str]:
        return list(self._held)

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        self._wait(path)
        return super().make_directory(path, durable=durable)

    def rename(self, source: str, target: str) -> None:
        self._wait(source)
        super().rename(source, target)

    def _wait(self, path: str) -> None:
        for part, free in tuple(self._held.items()):
            if part in path:
                free.wait()
