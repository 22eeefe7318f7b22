"""``python -m compatibility.management``: ask both servers, and write the section."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from compatibility.management import page
from compatibility.management.known import KNOWN, reason
from compatibility.management.play import count, play
from compatibility.management.scenes import scenes
from compatibility.management.servers import jetstream, streamlog


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="streamlog-management-"))
    played = scenes()
    try:
        with jetstream(folder / "jetstream") as url, streamlog(folder / "node") as port:
            found = asyncio.run(play(played, url, port))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    explained = [reason(difference) for difference in found]
    unknown = [it for it, row in zip(found, explained, strict=True) if row is None]
    stale = [row.what for row in KNOWN if row not in explained]
    for line in [*map(str, unknown), *(f"explains nothing: {what}" for what in stale)]:
        print(line)
    print(f"{count(played)} requests, {len(found)} differing fields, {len(unknown)} unexplained")
    if not unknown:
        page.write(_version(), count(played))
    return 1 if unknown or stale else 0


def _version() -> str:
    program = Path(sys.executable).parent / "nats-server"
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return told.stdout.strip().replace(":", "")


if __name__ == "__main__":
    sys.exit(main())
