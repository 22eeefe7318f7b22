"""A chain read from its files as they lie there: nothing is opened, locked or mended."""

from collections.abc import Iterator
from pathlib import Path

from streamlog.errors import BrokenChain, ChannelNotFound, CorruptBlock, InvalidRequest
from streamlog.ledger.core.verifier import ChainReport, ChainVerifier
from streamlog.ledger.folder import BLOCKS_FOLDER, CHANNEL_FILE, channels_in
from streamlog.log.tools.dump import DumpedDamage, dump
from streamlog.record.codec import iter_records


def chain_folder(path: Path, channel: str | None) -> tuple[Path, str | None]:
    """The folder of blocks that is meant, and the channel that it should be of, if that is known.

    ``path``: an ordering node's folder, a channel's, or the blocks' alone. Raises ChannelNotFound;
    InvalidRequest where there are several channels and none is named.
    """
    if (path / CHANNEL_FILE).exists():
        path, found = path.parent, [path.name]
    else:
        found = channels_in(path)
    if channel is not None and found and channel not in found:
        raise ChannelNotFound(f"{path} has no channel {channel!r}; it has {', '.join(found)}")
    if not found:
        if any(path.glob("*.log")):
            return path, channel
        raise ChannelNotFound(f"{path} is no folder of a ledger: there is no channel in it")
    if channel is None and len(found) > 1:
        raise InvalidRequest(f"{path} has several channels: name one by --channel: {found}")
    name = channel or found[0]
    return path / name / BLOCKS_FOLDER, name


def blocks_of(folder: Path) -> Iterator[bytes]:
    """Encoded, in order. Raises CorruptBlock where the files are damaged, with file and position.

    A last block that is torn is damage as well, which the node's next start would cut off.
    """
    if not any(folder.glob("*.log")):
        return
    following = 0
    for item in dump(folder):
        if isinstance(item, DumpedDamage):
            raise CorruptBlock(
                f"{item.file} position {item.damage.position}: block {following}:"
                f" {item.damage.problem}; the node mends it when it is started"
            )
        if item.header.base_offset != following:
            raise BrokenChain(
                f"{item.file}: block {item.header.base_offset} where {following} should be"
            )
        for record in iter_records(item.data):
            yield record.value or b""
        following = item.header.next_offset


def verify_folder(path: Path, channel: str | None = None) -> ChainReport:
    """A whole chain, from its genesis to its last block; needs only the files.

    Raises CorruptBlock or BrokenChain at the first block that is wrong, and as ``chain_folder``.
    """
    folder, name = chain_folder(path, channel)
    verifier = ChainVerifier(channel=name)
    for encoded in blocks_of(folder):
        verifier.take(encoded)
    return verifier.report()
