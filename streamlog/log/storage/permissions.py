"""The files of a node are for its own account alone.

What a node stores is as secret as what was sent to it, and its metadata has keys from which
passwords can be guessed. So its process has a umask, which holds for every file that it makes, and
a folder from before is made tight at the start.
"""

import os
import stat
from pathlib import Path
from typing import Final

UMASK: Final = 0o077
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
OTHERS_MAY: Final = stat.S_IRWXG | stat.S_IRWXO


def set_umask() -> None:
    """For all files that this process makes from now on, and for the processes that it starts."""
    os.umask(UMASK)


def tighten(folder: Path) -> bool:
    """Take every right of others to the folder, and to all in it. Whether they had any. Raises
    OSError for what belongs to another account.

    The folder itself comes first: from then on no other account reaches what is in it. Where it is tight
    already, so is what was made in it since.
    """
    if not folder.stat().st_mode & OTHERS_MAY:
        return False
    folder.chmod(FOLDER_MODE)
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            _tighten(Path(path, name))
    return True


def _tighten(path: Path) -> None:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return  # where it leads to is not ours to change
    if found.st_mode & OTHERS_MAY:
        path.chmod(FOLDER_MODE if stat.S_ISDIR(found.st_mode) else FILE_MODE)
