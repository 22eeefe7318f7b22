"""From the log of a partition of ``__transaction_state`` to its transactional ids. Pure."""

from typing import NamedTuple

from streamlog.coordination.replay import LogReplay
from streamlog.record.batch import BatchHeader
from streamlog.record.compression import Buffer
from streamlog.transactions.records import read_key, read_transaction
from streamlog.transactions.transaction import Transaction


class KnownTransaction(NamedTuple):
    """A transactional id, and what is kept of it."""

    transactional_id: str
    transaction: Transaction


class TransactionReplay(LogReplay):
    """``feed`` the log, batch by batch, then take the transactions that are ``built``."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, Transaction] = {}

    def take(
        self, key: bytes, value: bytes | None, _offset: int = 0, _header: BatchHeader | None = None
    ) -> None:
        transactional_id = read_key(key)
        if transactional_id is None:
            return
        if value is None:
            self._known.pop(transactional_id, None)
        else:
            self._known[transactional_id] = read_transaction(value)

    def _take_control(self, header: BatchHeader, batch: Buffer) -> None:
        """No control batch says anything of them."""

    def built(self) -> list[KnownTransaction]:
        return [KnownTransaction(*it) for it in self._known.items()]
