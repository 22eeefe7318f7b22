"""The program ``streamlog`` inside of the tests' process: its start would take longer than most commands."""

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from streamlog.cli.program import main


def streamlog(
    words: Sequence[str], *, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """What a process of its own would come to; ``environment`` is added to ours."""
    source = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    printed, said = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(each, encoding="utf-8") for each in (printed, said))
    code: Any = 0
    umask = os.umask(0o077)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (environment or {}).items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["streamlog", *words])
            patch.setattr(sys, "stdin", source)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            try:
                main()
            except SystemExit as ended:
                code = ended.code
    finally:
        os.umask(umask)
    for stream in (out, err):
        stream.flush()
    return subprocess.CompletedProcess(
        [*words], int(code or 0), printed.getvalue(), said.getvalue()
    )
