from collections.abc import Callable

from streamlog.errors import CorruptFile, EncryptionKeyMissing
from streamlog.log.encryption import key_file
from streamlog.log.encryption.cipher import BatchCipher, is_encrypted
from streamlog.log.encryption.key_file import WrappedKey
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.layout import KEY_SUFFIX, LOG_SUFFIX
from streamlog.record.compression import Buffer


class SegmentOpener:
    """Opens the batches of a segment for a reader of it it as it lies there: a copy, or beside
    the node that writes it. The data key is looked for at the first batch that needs it.
    """

    __slots__ = ("_cipher", "_has_key", "_keys", "_read_small", "_remedy", "key_path", "path")

    def __init__(
        self,
        path: str,
        keys: KeyRing,
        read_small: Callable[[str], bytes],
        *,
        remedy: str = "give it as --key NAME=SOURCE, or --config of a node that has it",
    ) -> None:
        """``path``: of the file of batches; ``read_small`` gives the content of a file; ``remedy``:
        how to give a key that is missing.
        """
        self.path = path
        self.key_path = path.removesuffix(LOG_SUFFIX) + KEY_SUFFIX
        self._keys = keys
        self._read_small = read_small
        self._remedy = remedy
        self._cipher: BatchCipher | None = None
        self._has_key = False

    def wrapped(self) -> WrappedKey:
        """The data key as it lies there. Raises CorruptFile, OSError."""
        try:
            data = self._read_small(self.key_path)
        except FileNotFoundError:
            raise CorruptFile(
                f"{self.key_path} is missing: what is encrypted in {self.path} needs it, so copy"
                " one with the other"
            ) from None
        return key_file.decode(data, self.key_path)

    @property
    def key_name(self) -> str:
        """Of the key that opens the data key; "?" where its file is missing or damaged. Raises
        OSError.
        """
        try:
            return self.wrapped().key_name
        except CorruptFile:
            return "?"

    @property
    def cipher(self) -> BatchCipher:
        """Raises CorruptFile, EncryptionKeyMissing, OSError."""
        if self._cipher is None:
            try:
                wrapped = self.wrapped()
                data_key = self._keys.unwrapped(wrapped, self.key_path)
            except EncryptionKeyMissing as error:
                raise EncryptionKeyMissing(f"{error}; {self._remedy}") from None
            self._cipher = BatchCipher(data_key, wrapped.since)
        return self._cipher

    @property
    def has_key(self) -> bool:
        """There is a file of a data key, whatever is in it; once there is, there will be. Raises
        OSError.
        """
        if not self._has_key:
            try:
                self._read_small(self.key_path)
                self._has_key = True
            except FileNotFoundError:
                pass
        return self._has_key

    def opened(self, batch: Buffer) -> Buffer:
        """A whole batch as it was appended; one from before encryption began as it is.

        Raises CorruptBatch if it was changed, or is in the clear where encryption had begun, and
        what ``cipher`` does.
        """
        if not is_encrypted(batch) and not self.has_key:
            return batch
        return self.cipher.decrypted(batch)
