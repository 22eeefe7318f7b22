"""nats.js' own tests, run by Deno: what they start as nats-server is a node.

``nats-js-core.toml`` (without JetStream) and ``nats-js.toml`` (streams, consumers, buckets, object
stores) list the files, what is left out, and what fails for a known reason. Deno and the packages
that the client depends on come from npm; what is in no registry but JSR is replaced by the modules
in ``inside/deno``.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

import pytest

from tests.peers import nats_stand_in
from tests.peers.expectations import Expectations, judge
from tests.peers.sources import NoSourcesError, Peer, cache, sources

pytestmark = [pytest.mark.peers, pytest.mark.slow]

VERSION: Final = "3.4.0"
NATS_JS: Final = Peer("nats.js", "https://github.com/nats-io/nats.js", ".")
DENO: Final = "2.9.6"
PACKAGES: Final = {
    "@nats-io/nkeys": "npm:@nats-io/nkeys@2.0.3",
    "@nats-io/nuid": "npm:@nats-io/nuid@3.0.0",
    "@nats-io/jwt": "npm:@nats-io/jwt@0.0.11",
    "js-sha256": "npm:js-sha256@0.11.1",
}
"""Of the versions that nats.js 3.4.0 names in JSR."""
INSIDE: Final = Path(__file__).with_name("inside") / "deno"
INSTALL_TIMEOUT_S: Final = 300.0
FILE_TIMEOUT_S: Final = 900.0
FILES_AT_ONCE: Final = 2
"""They wait most of the time."""

_NAME = re.compile(r"""^Deno\.test\(\s*(?:\{\s*name:\s*)?(["'`])(.+?)\1""", re.MULTILINE)


class Outcome(NamedTuple):
    """Of one test: passed, failed or skipped, and what it said."""

    kind: str
    said: str


@pytest.fixture
def deno() -> str:
    folder = cache() / f"deno-{DENO}"
    program = folder / "node_modules" / ".bin" / "deno"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        command = ["npm", "install", "--no-audit", "--no-fund", f"deno@{DENO}"]
        try:
            subprocess.run(
                command, cwd=folder, capture_output=True, check=True, timeout=INSTALL_TIMEOUT_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"Deno cannot be had: {error}")
    return str(program)


@pytest.fixture
def folder() -> Path:
    try:
        return sources(NATS_JS, VERSION).folder
    except NoSourcesError as error:
        pytest.skip(f"the tests of nats.js cannot be had: {error}")


@pytest.mark.parametrize("listed", ["nats-js-core", "nats-js"])
def test_nats_jss_own_tests_pass(
    deno: str, folder: Path, tmp_path: Path, listed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = Expectations.read(Path(__file__).with_name(f"{listed}.toml"))
    run = Run(deno, folder, tmp_path)
    outcomes: dict[str, Outcome] = {}
    collected = [test for file in expected.files for test in names(folder, file)]
    wanted = [test for test in collected if expected.place(test) != "left out"]
    outcomes |= run.tests(wanted)
    again = [test for test in wanted if failed(outcomes, test) and not expected.is_failing(test)]
    outcomes |= run.tests(again)  # some depend on timing
    verdict = judge(expected, collected, {test: it.kind for test, it in outcomes.items()})
    with capsys.disabled():
        print(f"\n{listed} {VERSION}: {Counter(it.kind for it in outcomes.values())}")
        for test in verdict.failed:
            print(f"  failed: {test}")
        for test in verdict.surprises:
            print(f"  passed, though it is listed as failing: {test}")
        for name in verdict.unknown:
            print(f"  listed, but there is no such test: {name}")
    assert outcomes.keys() == set(wanted)
    assert verdict.passed, "nothing was run"
    assert verdict.failed == [], "\n\n".join(
        f"{test}:\n{outcomes[test].said}" for test in verdict.failed
    )


def names(folder: Path, file: str) -> list[str]:
    """The tests of a file, as ``FILE::NAME``."""
    text = (folder / file).read_text()
    return [f"{file}::{name}" for _, name in _NAME.findall(text)]


def failed(outcomes: Mapping[str, Outcome], test: str) -> bool:
    return test not in outcomes or outcomes[test].kind == "failed"


class Run:
    """Runs tests, each file in a process of its own, some at once."""

    def __init__(self, deno: str, sources: Path, folder: Path) -> None:
        self._deno = deno
        self._sources = sources
        self._folder = folder
        self._programs = nats_stand_in.install(folder / "programs")
        self._imports = folder / "imports.json"
        self._imports.write_text(json.dumps({"imports": imports(sources)}))

    def tests(self, wanted: Sequence[str]) -> dict[str, Outcome]:
        """What became of them. A test that was cancelled has failed."""
        files: dict[str, list[str]] = {}
        for test in wanted:
            file, _, name = test.partition("::")
            files.setdefault(file, []).append(name)
        found: dict[str, Outcome] = {}
        with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
            for of_file in threads.map(self._file, files, files.values()):
                found |= of_file
        return found

    def _file(self, file: str, wanted: Sequence[str]) -> dict[str, Outcome]:
        folder = self._folder / file.replace("/", "-")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        report, nodes = folder / "report.xml", folder / "nodes"
        only = "|".join(re.sub(r"[^\w\s]", ".", name) for name in wanted)
        options = ["--no-config", f"--import-map={self._imports}", "--no-check", "-A"]
        command = [self._deno, "test", *options, f"--junit-path={report}", f"--filter=/^({only})$/"]
        path = f"{self._programs}:{os.environ['PATH']}"
        with (folder / "output").open("w+", errors="replace") as output:
            process = subprocess.Popen(
                [*command, file],
                cwd=self._sources,
                env={**os.environ, "PATH": path, nats_stand_in.FOLDER: str(nodes), "NO_COLOR": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(FILE_TIMEOUT_S)
            with contextlib.suppress(ProcessLookupError):  # nodes of tests that failed are left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            output.seek(0)
            said = output.read()
        cases = ElementTree.parse(report).iter("testcase") if report.exists() else ()
        outcomes = {str(case.get("name")): outcome(case) for case in cases}
        missing = Outcome("failed", said[-2000:])
        return {f"{file}::{name}": outcomes.get(name, missing) for name in wanted}


def imports(folder: Path) -> dict[str, str]:
    core = folder / "core"
    return {
        **PACKAGES,
        "@std/assert": str(INSIDE / "assert.ts"),
        "@std/bytes": str(INSIDE / "bytes.ts"),
        "@std/io": str(INSIDE / "io.ts"),
        "nst": str(core / "tests" / "nst.ts"),
        "@nats-io/nst": str(folder / "nst" / "src" / "mod.ts"),
        "@nats-io/nats-core": str(core / "src" / "mod.ts"),
        "@nats-io/nats-core/internal": str(core / "src" / "internal_mod.ts"),
        "@nats-io/jetstream": str(folder / "jetstream" / "src" / "mod.ts"),
        "@nats-io/jetstream/internal": str(folder / "jetstream" / "src" / "internal_mod.ts"),
        "@nats-io/transport-deno": str(folder / "transport-deno" / "src" / "mod.ts"),
    }


def outcome(case: ElementTree.Element) -> Outcome:
    for kind, tag in (("failed", "failure"), ("failed", "error"), ("skipped", "skipped")):
        if (found := case.find(tag)) is not None:
            return Outcome(kind, f"{found.get('message', '')}\n{found.text or ''}")
    return Outcome("passed", "")
