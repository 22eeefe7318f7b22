"""Messages that ask for something by their headers, records of Kafka producers that would, and a
leadership that comes and goes while message ids are written to their file.
"""

from streamlog.metadata.stream.stream_config import StreamConfig
from tests.simulation.publisher import BatchPublisher, RollingPublisher, copied
from tests.simulation.world import TROUBLE_UNTIL_US, World

ASKING = StreamConfig.of(
    name="s", discard="new", allow_atomic=True, allow_batched=True, allow_rollup=True
)


class AskingWorld(World):
    """Of a stream that is nearly full now and then, so that reads are refused in part."""

    config = ASKING

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        kinds = {"m": BatchPublisher, "n": BatchPublisher, "r": RollingPublisher}
        for name, kind in kinds.items():
            self._publishers[name] = self._publisher(name, window=1, kind=kind)
        self._copies = 0
        self._troubles = (
            self._die, self._fail_sync, self._fill, self._erasures_fail, self._limit, self._limit,
            self._another_leads, self._another_leads, self._save_ids, self._save_ids, self._copy,
            self._copy,
        )  # fmt: skip

    def _pause_us(self) -> int:
        return self.rng.randint(500, 8_000)

    def _trouble(self) -> None:
        super()._trouble()
        if self.events.now_us >= TROUBLE_UNTIL_US:
            self._have_room()

    def _die(self) -> None:
        """Perhaps on a disk that fails just when the next start reads the log."""
        super()._die()
        if self.rng.random() < 0.5:
            self._fail_sync()

    def _erasures_fail(self) -> None:
        if self.life is not None:
            self._tell("no room for erasures")
            self.life.erasing.fails = True
            self.events.after(self.rng.randint(1_000, 10_000), self._have_room)

    def _limit(self) -> None:
        """To a few more messages than there are."""
        life = self.life
        if life is not None:
            start, end = life.log_start_offset, life.log_end_offset
            there = end - start - life.erased.count(start, end)
            more = there + self.rng.randint(1, 6)
            self._tell(f"limited to {more} messages")
            life.config = ASKING.changed(retention_messages=more)
            self.events.after(self.rng.randint(1_000, 10_000), self._have_room)

    def _have_room(self) -> None:
        if self.life is not None:
            self.life.erasing.fails, self.life.config = False, ASKING

    def _another_leads(self) -> None:
        if self.life is None or not self.life.follow(self._epoch + 1, cuts=self.rng.random() < 0.5):
            return
        self._epoch += 1
        self._tell(f"another leads in epoch {self._epoch}")
        life = self.life
        self.events.after(self.rng.randint(1_000, 8_000), lambda: self._lead_again(life))

    def _lead_again(self, life: object) -> None:
        if self.life is life and self.life is not None:
            self._epoch += 1
            self._tell(f"leads again in epoch {self._epoch}")
            self.life.lead_again(self._epoch)
            self._look()

    def _save_ids(self) -> None:
        if self.life is not None:
            self._tell("ids are written")
            self.life.save_ids()

    def _copy(self) -> None:
        """With the id of a message that is still to come."""
        if self.life is not None and self.life.another is None:
            self._copies += 1
            publisher = self._publishers[self.rng.choice("abc")]
            self._tell(f"a copy with the id {publisher.next_id}")
            self.life.produce(copied(publisher.next_id, f"k:{self._copies}"))
