"""What control batches come to: erasures, and the ends of transactions. No files."""

from streamlog.log.erasure.erasures import Erasure, Erasures
from streamlog.log.transactions.transactions import Transactions
from streamlog.record.batch import BatchHeader, read_header
from streamlog.record.codec import marked_batches
from streamlog.record.compression import Buffer
from streamlog.record.erasure import erased_by, is_placeholder
from streamlog.record.transaction_marker import marker_of


def note_all(erasures: Erasures, transactions: Transactions, records: bytes | memoryview) -> None:
    """Of whole batches, back to back, that follow all that was noted before. Raises CorruptBatch."""
    positions, _ = marked_batches(records)
    for position in positions:
        header = read_header(records, position)
        if header.is_control:
            batch = memoryview(records)[position : position + header.size_bytes]
            note_control(erasures, transactions, batch, header)
        elif header.is_transactional:
            note_records(transactions, header)


def note_records(transactions: Transactions, header: BatchHeader) -> None:
    transactions.note_records(
        header.producer_id,
        header.producer_epoch,
        base_offset=header.base_offset,
        next_offset=header.next_offset,
        timestamp_ms=header.max_timestamp_ms,
    )


def note_control(
    erasures: Erasures, transactions: Transactions, batch: Buffer, header: BatchHeader
) -> None:
    """An abort has the records of its transaction count as erased; no marker is a message. Raises CorruptBatch."""
    marker = marker_of(batch, header)
    if marker is not None:
        gone = transactions.note_marker(
            marker.producer_id, offset=header.base_offset, is_commit=marker.is_commit
        )
        is_abort = not marker.is_commit
        erasures.note(Erasure(header.base_offset, header.leader_epoch, gone, is_abort=is_abort))
        return
    erased = erased_by(batch, header)
    if erased is not None:
        stands = not erased and is_placeholder(batch)
        erasures.note(Erasure(header.base_offset, header.leader_epoch, erased, stands))
