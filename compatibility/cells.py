"""Runs one cell, or asks a client for its version."""

import json
import re
import tempfile
from pathlib import Path

from confluent_kafka import KafkaException

from compatibility.checks.check import Check
from compatibility.cluster import Cluster
from compatibility.outcome import Failed, NotOffered, Outcome, one_line
from compatibility.program import Program
from compatibility.registries import Installed
from compatibility.scene import Scene


def run_cell(
    cluster: Cluster, installed: Installed, name: str, check: Check, folder: Path
) -> Outcome:
    """What came of it; a fault of the check itself is raised. ``name``: no other cell's."""
    try:
        with Scene(cluster, installed, name, folder) as scene:
            note = check.run(scene)
            return Outcome("pass", "; ".join(filter(None, [note, *scene.notes()])))
    except NotOffered as reason:
        return Outcome("not offered", one_line(str(reason)))
    except Failed as reason:
        return Outcome("fail", _of_cluster(str(reason), cluster, folder))
    except TimeoutError:  # this one and the next: of what the check asks by itself
        return Outcome("fail", "the nodes did not answer the client that results are judged by")
    except KafkaException as refused:
        return Outcome("fail", _of_cluster(str(refused), cluster, folder))


def version_of(installed: Installed) -> str:
    """As the client tells it itself."""
    command = (*installed.command, "-", "version", json.dumps({}))
    with (
        tempfile.TemporaryDirectory() as folder,
        Program(command, Path(folder) / "version.log", installed.environment) as program,
    ):
        line = program.line()
        if line is None:
            raise Failed("it tells no version")
        program.finish()
        return str(line["version"])


def without_places(reason: str, *places: str) -> str:
    """Reasons are read by others: no folders and no ports."""
    for place in places:
        reason = reason.replace(place, "…")
    return one_line(re.sub(r"127\.0\.0\.1:\d+", "…", reason))


def _of_cluster(reason: str, cluster: Cluster, folder: Path) -> str:
    servers = cluster.servers.split(",")
    return without_places(reason, str(folder), str(cluster.folder), *servers)
