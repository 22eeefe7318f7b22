"""nats.java's own tests, by Maven and javac into the cache of peers.

Their sources are an artifact of Maven Central, with the client's version; ``inside/java/pom.xml``
names it, and what the tests depend on. ``built`` compiles them, with ``REPLACED`` replaced.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from tests.peers import nats_stand_in
from tests.peers.sources import NoSourcesError, cache

VERSION: Final = "2.25.1"
POM: Final = Path(__file__).with_name("inside") / "java" / "pom.xml"
BUILD_TIMEOUT_S: Final = 600.0
CLASS_TIMEOUT_S: Final = 900.0
CLASSES_AT_ONCE: Final = 4
"""They wait most of the time, 2 s for the first PING of each server."""
TEST_TIMEOUT: Final = "3m"
"""As nats.java's build has it."""
REPLACED: Final = {
    "setDefaultValidateTries(5)": "setDefaultValidateTries(600)",
    "connectValidateTries(15)": "connectValidateTries(600)",
    '"token_one"': '"token-one-of-16-letters"',
    '"token_two"': '"token-two-of-16-letters"',
    "nats://token_one@": "nats://token-one-of-16-letters@",
    "nats://token_two@": "nats://token-two-of-16-letters@",
    '"--auth", "derek"': '"--auth", "derek-of-16-letters"',
    'token("derek"': 'token("derek-of-16-letters"',
    '"--auth", "colin"': '"--auth", "colin-of-16-letters"',
    '"--auth", "ivan"': '"--auth", "ivan-of-16-letters"',
    '"--auth", "1234"': '"--auth", "1234-of-16-letters"',
    "new char[]{'1', '2', '3', '4'}": '"1234-of-16-letters".toCharArray()',
}
"""Servers are given half a second to listen, at intervals of 50 ms or less, and a node needs more. It
takes no token of less than 16 characters."""

_TEST = re.compile(r"@(?:Parameterized)?Test\b.*?\bvoid\s+(\w+)\(", re.DOTALL)
_METHOD = re.compile(r"\w+")


class Outcome(NamedTuple):
    """Of one test: passed, failed or skipped, and what it said."""

    kind: str
    said: str


def built() -> Path:
    """The folder that the tests are run in. Raises NoSourcesError where it cannot be had."""
    folder = cache() / f"nats.java-{VERSION}"
    if not folder.exists():
        for program in ("java", "javac", "mvn"):
            if shutil.which(program) is None:
                raise NoSourcesError(f"{program} is needed")
        partial = folder.with_suffix(".part")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        shutil.copy(POM, partial)
        maven = ["mvn", "--quiet", "--batch-mode", f"-Djnats.version={VERSION}"]
        _build(partial, *maven, "dependency:unpack@tests", "dependency:copy-dependencies")
        files = sorted(str(it.relative_to(partial)) for it in (partial / "src").rglob("*.java"))
        for file in files:
            replace(partial / file)
        _build(partial, "javac", "-nowarn", "-d", "classes", "-cp", "libraries/*", *files)
        partial.rename(folder)
    return folder


def replace(path: Path) -> None:
    content = path.read_text()
    for old, new in REPLACED.items():
        content = content.replace(old, new)
    path.write_text(content)


def _build(folder: Path, *command: str) -> None:
    try:
        subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True, timeout=BUILD_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        said = f"{error.stdout}{error.stderr}".strip()
        raise NoSourcesError(f"{command[0]}: {said[-200:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSourcesError(f"{command[0]}: {error}") from None


def names(folder: Path, name: str) -> list[str]:
    """The tests of a class, as ``CLASS::METHOD``."""
    text = (folder / "src/test/java" / f"{name.replace('.', '/')}.java").read_text()
    return [f"{name}::{method}" for method in _TEST.findall(text)]


class Run:
    """Runs tests, each class in a process of its own, some at once."""

    def __init__(self, project: Path, folder: Path) -> None:
        """``project``: what ``built`` returns."""
        self._project = project
        self._folder = folder
        self._programs = nats_stand_in.install(folder / "programs")

    def tests(self, wanted: Sequence[str]) -> dict[str, Outcome]:
        """What became of them."""
        classes: dict[str, list[str]] = {}
        for test in wanted:
            classes.setdefault(test.partition("::")[0], []).append(test)
        found: dict[str, Outcome] = {}
        with ThreadPoolExecutor(CLASSES_AT_ONCE) as threads:
            for of_class in threads.map(self._class, classes.values()):
                found |= of_class
        return found

    def _class(self, wanted: Sequence[str]) -> dict[str, Outcome]:
        folder = self._folder / wanted[0].partition("::")[0]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        reports, nodes = folder / "reports", folder / "nodes"
        methods = [f"--select-method={test.replace('::', '#')}" for test in wanted]
        command = [
            "java", "-Xmx1g", f"-Djava.io.tmpdir={folder}",
            f"-Djunit.jupiter.execution.timeout.default={TEST_TIMEOUT}",
            "-cp", "classes:src/test/resources:libraries/*",
            "org.junit.platform.console.ConsoleLauncher", "execute",
            f"--reports-dir={reports}", "--details=none", *methods,
        ]  # fmt: skip
        path = f"{self._programs}:{os.environ['PATH']}"
        with (folder / "output").open("w+", errors="replace") as output:
            process = subprocess.Popen(
                command,
                cwd=self._project,
                env={**os.environ, "PATH": path, nats_stand_in.FOLDER: str(nodes)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(CLASS_TIMEOUT_S)
            with contextlib.suppress(ProcessLookupError):  # nodes of tests that failed are left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            output.seek(0)
            said = output.read()
        missing = Outcome("failed", said[-2000:])
        return dict.fromkeys(wanted, missing) | dict(reported(reports))


def reported(folder: Path) -> Iterator[tuple[str, Outcome]]:
    """What JUnit reports. A test of several parameters has failed if it has with one of them."""
    outcomes: dict[str, Outcome] = {}
    for file in folder.glob("TEST-*.xml"):
        for case in ElementTree.parse(file).iter("testcase"):
            method = _METHOD.match(case.get("name", ""))
            test = f"{case.get('classname')}::{method[0] if method else ''}"
            if outcomes.get(test, Outcome("passed", "")).kind != "failed":
                outcomes[test] = outcome(case)
    yield from outcomes.items()


def outcome(case: ElementTree.Element) -> Outcome:
    for kind, tag in (("failed", "failure"), ("failed", "error"), ("skipped", "skipped")):
        if (found := case.find(tag)) is not None:
            return Outcome(kind, f"{found.get('message', '')}\n{found.text or ''}")
    return Outcome("passed", "")
