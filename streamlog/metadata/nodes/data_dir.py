"""The node's folder: whose it is, and that no other process uses it.

``node.json`` names the cluster, the node, the folder itself and the version of the format; ``lock``
is held while the node runs; ``last-run`` tells how the last one ended. Whatever is wrong with the
folder is a ConfigError of one line.
"""

import json
import logging
import uuid
from pathlib import Path
from typing import Final, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from streamlog.condition import CORRECT_THEN_RESTART, Condition
from streamlog.errors import ConfigError
from streamlog.log.storage.disk import Disk, OsDisk
from streamlog.log.storage.folder_lock import FolderInUse, FolderLock
from streamlog.log.storage.permissions import tighten
from streamlog.metadata.nodes.last_run import LAST_RUN, NodeRuns, this_boot
from streamlog.model import NodeId

logger = logging.getLogger(__name__)

RUN_NOT_NOTED: Final = Condition(
    "SL-0130",
    "run not noted",
    CORRECT_THEN_RESTART,
    meaning="The node could not note in its data folder how this run began or ended. The next "
    "start takes its logs for torn.",
)
FOLDER_WAS_OPEN: Final = Condition(
    "SL-0134",
    "others could read the data folder",
    "nothing: it is for the node's account alone from now on; change passwords if others "
    "may have read it",
    meaning="Other accounts of the machine could read the data folder. The node has taken that "
    "right away.",
)
FOLDER_IS_OPEN: Final = Condition(
    "SL-0135",
    "others can read the data folder",
    "chown it to the account of the node, or chmod -R go= it",
    meaning="Other accounts of the machine can read the folder, and the node may not change that.",
)

FORMAT_VERSION: Final = 1
"""Grows when an older streamlog would misread the folder."""

KEY: Final = "node.data_dir"


class NodeFile(BaseModel):
    """What ``node.json`` says."""

    model_config = ConfigDict(frozen=True)

    cluster_id: str
    node_id: int
    format_version: int
    directory_id: UUID | None = None
    """Of this folder: one that was lost and made again has another. None: not noted yet."""


class DataDir:
    """The folder, locked."""

    def __init__(self, path: Path, node: NodeFile, lock: FolderLock, disk: Disk) -> None:
        self.path = path
        self.cluster_id = node.cluster_id
        self.node_id = NodeId(node.node_id)
        assert node.directory_id is not None, "noted by now"
        self.directory_id = node.directory_id
        self._lock = lock
        self._runs = NodeRuns(disk, path, this_boot())

    @property
    def streams(self) -> Path:
        return self.path / "streams"

    @property
    def metadata(self) -> Path:
        return self.path / "metadata"

    @classmethod
    def open(
        cls,
        path: Path,
        node_id: NodeId,
        *,
        cluster_id: str | None = None,
        disk: Disk | None = None,
    ) -> Self:
        """Make, lock and check the folder. A new one gets ``cluster_id``, or an id of its own."""
        disk = disk or OsDisk()
        path = path.absolute()
        try:
            disk.make_directory(str(path))
            lock = FolderLock.take(path)
        except FolderInUse as refusal:
            raise ConfigError(KEY, f"{path} {refusal}", "stop it, or name another folder") from None
        except OSError as error:
            raise ConfigError(
                KEY,
                f"{path} cannot be used ({error.strerror})",
                "name a folder that can be written",
            ) from None
        try:
            node = _read_or_write(disk, path, node_id, cluster_id)
        except OSError as error:
            lock.close()
            problem = f"{path}/node.json cannot be written ({error.strerror})"
            raise ConfigError(KEY, problem, "make room, or name another folder") from None
        except BaseException:
            lock.close()
            raise
        _tighten(path)
        return cls(path, node, lock, disk)

    def begin_run(self, stamp: UUID) -> bool:
        """Whether what was written and not synced is lost; see ``NodeRuns``. Raises ConfigError."""
        try:
            return self._runs.begin(stamp)
        except OSError as error:
            raise self._cannot_be_noted(error) from None

    def power_was_lost(self) -> bool:
        """See ``NodeRuns``. Raises ConfigError."""
        try:
            return self._runs.power_was_lost()
        except OSError as error:
            problem = f"{self.path}/{LAST_RUN} cannot be read ({error.strerror})"
            raise ConfigError(KEY, problem, "repair it, or name another folder") from None

    @property
    def stamps(self) -> tuple[UUID, ...]:
        """After ``begin_run``; see ``Run``."""
        return self._runs.stamps

    @property
    def metadata_log(self) -> UUID | None:
        """Of the run before, or as noted since; see ``NodeRun``. After ``begin_run``."""
        return self._runs.metadata_log

    def stamp(self) -> bool:
        """Add a stamp. False where it cannot be noted: it must not be told then."""
        try:
            self._runs.stamp(uuid.uuid4())
        except OSError as error:
            logger.warning(RUN_NOT_NOTED, extra={"error": error.strerror})
            return False
        return True

    def told_of_loss(self) -> None:
        """The controller knows. If that cannot be noted, the next run tells it again."""
        try:
            self._runs.told()
        except OSError as error:
            logger.warning(RUN_NOT_NOTED, extra={"error": error.strerror})

    def logs_recovered(self) -> None:
        """If that cannot be noted, the next run takes its logs for torn once more."""
        try:
            self._runs.recovered()
        except OSError as error:
            logger.warning(RUN_NOT_NOTED, extra={"error": error.strerror})

    def follows(self, metadata_log: UUID | None) -> None:
        """If that cannot be noted, the next run trusts the same metadata no more than a strange one."""
        try:
            self._runs.follows(metadata_log)
        except OSError as error:
            logger.warning(RUN_NOT_NOTED, extra={"error": error.strerror})

    def end_run(self) -> None:
        """All is synced and closed. Raises ConfigError."""
        try:
            self._runs.end()
        except OSError as error:
            raise self._cannot_be_noted(error) from None

    def _cannot_be_noted(self, error: OSError) -> ConfigError:
        problem = f"{self.path}/{LAST_RUN} cannot be written ({error.strerror})"
        return ConfigError(KEY, problem, "make room, or name another folder")

    def close(self) -> None:
        """Let others have the folder; may be called again."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _tighten(path: Path) -> None:
    try:
        if tighten(path):
            logger.warning(FOLDER_WAS_OPEN, extra={"folder": str(path)})
    except OSError as error:
        extra = {"folder": str(path), "error": error.strerror}
        logger.warning(FOLDER_IS_OPEN, extra=extra)


def _read_or_write(disk: Disk, path: Path, node_id: NodeId, cluster_id: str | None) -> NodeFile:
    file = path / "node.json"
    try:
        node = _decode(file, disk.read_small(str(file)))
    except FileNotFoundError:
        _check_is_new(path)
        node = NodeFile(
            cluster_id=cluster_id or uuid.uuid4().hex,
            node_id=node_id,
            format_version=FORMAT_VERSION,
            directory_id=uuid.uuid4(),
        )
        _write(disk, file, node)
        return node
    if node.format_version > FORMAT_VERSION:
        problem = f"{path} has format {node.format_version}; this streamlog knows {FORMAT_VERSION}"
        raise ConfigError(KEY, problem, "run the streamlog that wrote it, or a later one")
    if node.node_id != node_id:
        problem = f"is {node_id}, and {path} belongs to node {node.node_id}"
        raise ConfigError("node.id", problem, "set the id of the folder, or name another folder")
    if cluster_id is not None and node.cluster_id != cluster_id:
        problem = f"{path} belongs to cluster {node.cluster_id}, not {cluster_id}"
        raise ConfigError(KEY, problem, "name another folder")
    if node.directory_id is None:
        node = node.model_copy(update={"directory_id": uuid.uuid4()})
        _write(disk, file, node)
    return node


def _write(disk: Disk, file: Path, node: NodeFile) -> None:
    content = json.dumps(node.model_dump(mode="json"), indent=2) + "\n"
    disk.write_small(str(file), content.encode())


def _decode(file: Path, data: bytes) -> NodeFile:
    try:
        return NodeFile.model_validate_json(data)
    except ValidationError:
        raise ConfigError(
            KEY,
            f"{file} is damaged",
            "restore cluster_id, node_id, directory_id and format_version in it",
        ) from None


def _check_is_new(path: Path) -> None:
    """``node.json`` is the first file written; a folder with logs but without it has lost it."""
    for name in ("metadata", "streams"):
        if (path / name).exists():
            raise ConfigError(
                KEY, f"{path} has {name}/ but no node.json", "restore it, or name another folder"
            )
