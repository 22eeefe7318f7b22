"""What is deployed is valid by its schema, and fits the settings, the image and the program."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema.validators import validator_for
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from typer.testing import CliRunner

from streamlog import __version__
from streamlog.cli.node.health import TIMEOUT_S
from streamlog.cli.program import app
from streamlog.config import ENV_PREFIX, NodeSection, Settings, load_settings
from streamlog.metadata.quorum.voter_sets import configured_voters

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
THREE_NODES = ROOT / "config" / "three-nodes"
KUBERNETES_VERSIONS = ("1.31", "1.37")
"""The oldest one that is promised, and the newest one known."""
GRACE_MS = NodeSection.model_fields["stop_timeout_ms"].default


def image_environment() -> dict[str, str]:
    """What the Dockerfile sets."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith("ENV ")]
    return dict(pair.split("=", 1) for line in lines for pair in shlex.split(line)[1:])


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Settings of a file in a container that has this environment beside the image's own."""

    def loaded(path: Path, environment: Mapping[str, str] | None = None) -> Settings:
        with monkeypatch.context() as patch:
            for name, value in {**image_environment(), **(environment or {})}.items():
                if name.startswith(ENV_PREFIX):
                    patch.setenv(name, value)
            return load_settings(path)

    return loaded


def is_understood(command: list[str]) -> bool:
    """``streamlog …`` is a command that the program knows, with these options."""
    program, *arguments = command
    return program == "streamlog" and CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0


@pytest.mark.parametrize("command", ["streamlog srve", "streamlog cluster check --wiat"])
def test_a_wrong_command_would_be_found(command: str) -> None:
    assert not is_understood(command.split())


@pytest.mark.parametrize("name", ["nats-server.conf", "nats-permissions.conf"])
def test_the_settings_of_nats_server_are_valid(name: str) -> None:
    server = Path(sys.executable).parent / "nats-server"
    file = ROOT / "config" / name
    env = {**os.environ, "STREAMLOG_PASSWORD": "s1", "APP_PASSWORD": "a1"}
    done = subprocess.run(
        [server, "--config", file, "-t"], check=False, capture_output=True, text=True, env=env
    )
    assert (done.returncode, "is valid" in done.stderr + done.stdout) == (0, True), done


# The image


DOCKERFILES = ("Dockerfile", "deploy/spark/Dockerfile")


@pytest.mark.parametrize("name", DOCKERFILES)
def test_the_dockerfile_has_no_bad_habits(name: str) -> None:
    done = hadolint(ROOT / name)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_bad_habit_would_be_found(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM python\nRUN cd /tmp && sudo pip install streamlog\n")
    assert hadolint(file).returncode != 0


def hadolint(file: Path) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).parent / "hadolint"
    if not program.exists():
        pytest.skip("hadolint is not installed")
    return subprocess.run([program, file], check=False, capture_output=True, text=True)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_the_dockerfile_copies_is_let_through(name: str) -> None:
    """.dockerignore leaves out all but what it names."""
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / name).read_text(), re.MULTILINE)
    sources = {source for copy in copies for source in copy.split()}
    assert sources <= allowed
    assert all((ROOT / source).exists() for source in sources)
    copied = [(ROOT / source).resolve() for source in sources]
    links = [
        it for source in copied if source.is_dir() for it in source.rglob("*") if it.is_symlink()
    ]
    assert [it for it in links if not any(map(it.resolve().is_relative_to, copied))] == []


def locked(name: str) -> dict[str, Version]:
    """Every package of a lock file; each has its checksums."""
    text = (DEPLOY / name).read_text().replace("\\\n", " ")
    entries = [line for line in text.splitlines() if line.strip() and not line.startswith(" ")]
    assert all("--hash=sha256:" in line for line in entries)
    found = (re.match(r"([\w.-]+)==([\w.]+)", line) for line in entries)
    return {str(canonicalize_name(it[1])): Version(it[2]) for it in found if it}


@pytest.mark.parametrize(
    ("name", "extra"), [("requirements.lock", "tier"), ("spark/requirements.lock", "spark")]
)
def test_the_locked_packages_are_what_the_project_wants(name: str, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = list(map(Requirement, [*project["dependencies"], *extras.get(extra, [])]))
    for requirement in wanted:  # an extra may name others of ours
        if requirement.name == project["name"]:
            wanted += [Requirement(it) for other in requirement.extras for it in extras[other]]
    found = locked(name)
    for requirement in (it for it in wanted if it.name != project["name"]):
        version = found.get(str(canonicalize_name(requirement.name)))
        assert version is not None, f"{requirement} is not in {name}: `make lock`"
        assert version in requirement.specifier, f"{requirement} is {version} in {name}"


def test_what_builds_is_locked_too() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    found = locked("build.lock")
    for requirement in map(Requirement, build):
        assert found[str(canonicalize_name(requirement.name))] in requirement.specifier


def test_images_are_named_after_the_version(compose: dict[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values() if "build" in service]
    images += [
        it["image"] for it in manifest("StatefulSet")["spec"]["template"]["spec"]["containers"]
    ]
    assert {image.partition(":")[2] for image in images} == {__version__}


# systemd


def test_the_unit_is_valid(tmp_path: Path) -> None:
    """But for the program, which is elsewhere on this machine."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    text = (DEPLOY / "streamlog.service").read_text()
    assert verified(tmp_path, text.replace("/opt/streamlog/bin/streamlog", "/bin/true")) == ""
    assert "Unknown key" in verified(tmp_path, text.replace("[Service]", "[Service]\nRestrat=x"))


def verified(tmp_path: Path, text: str) -> str:
    unit = tmp_path / "streamlog.service"
    unit.write_text(text.replace("User=streamlog", "User=root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], check=False, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_the_unit_starts_what_there_is_and_waits_for_its_stop() -> None:
    text = (DEPLOY / "streamlog.service").read_text()
    (command,) = re.findall(r"^ExecStart=/opt/streamlog/bin/(.+)$", text, re.MULTILINE)
    assert is_understood(shlex.split(command))
    (timeout_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert int(timeout_s) * 1000 > GRACE_MS


# Three nodes


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_file_of_each_node(load: Any, number: int) -> None:
    settings = load(THREE_NODES / f"node-{number}.toml")
    assert settings.node.id == number
    me = configured_voters(settings.cluster.voters).by_id[settings.node.id]
    assert (me.host, me.port) == (settings.kafka.advertised_host, settings.kafka.port)


def test_all_files_name_the_same_cluster() -> None:
    files = [load_settings(THREE_NODES / f"node-{number}.toml") for number in (1, 2, 3)]
    (cluster,) = {settings.cluster for settings in files}
    assert cluster.id
    assert configured_voters(cluster.voters).ids == {1, 2, 3}
    assert len({settings.node.rack for settings in files}) == 3


# Compose


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return content


def compose_errors(content: Mapping[str, Any]) -> list[str]:
    schema = get_builtin_schema("vendor.compose-spec")
    return [error.message for error in validator_for(schema)(schema).iter_errors(content)]


def test_the_compose_file_is_valid(compose: dict[str, Any]) -> None:
    assert compose_errors(compose) == []


def test_an_invalid_compose_file_would_be_found(compose: dict[str, Any]) -> None:
    node = {**compose["services"]["node-1"], "comand": "misspelt"}
    assert compose_errors({**compose, "services": {"node-1": node}})


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_composed_node_is_configured(compose: dict[str, Any], load: Any, number: int) -> None:
    service = compose["services"][f"node-{number}"]
    config, data = service["volumes"]
    source, target, mode = config.split(":")
    settings = load((DEPLOY / source).resolve())
    assert settings.node.id == number
    assert settings.kafka.advertised_host == service["hostname"] == f"node-{number}"
    assert service["command"] == ["streamlog", "serve", "--config", target]
    assert is_understood(service["command"])
    assert mode == "ro"
    assert data == f"node-{number}:{settings.node.data_dir}"
    assert f"node-{number}" in compose["volumes"]
    assert int(service["stop_grace_period"].removesuffix("s")) * 1000 > GRACE_MS
    published = [port.split(":")[1:] for port in service["ports"]]
    ports = [str(settings.kafka.port), str(settings.http.port)]
    assert published == [[port, port] for port in ports]


def test_composed_nodes_find_each_other_and_nats(compose: dict[str, Any], load: Any) -> None:
    settings = load(THREE_NODES / "node-1.toml")
    services = compose["services"]
    assert {voter.partition("@")[2] for voter in settings.cluster.voters} == {
        f"{name}:{settings.kafka.port}" for name in services if name.startswith("node-")
    }
    (url,) = settings.nats.servers
    host, port = url.removeprefix("nats://").split(":")
    assert services[host]["ports"][0].endswith(f":{port}")
    addresses = [services[f"node-{i}"]["ports"][0].split(":")[0] for i in (1, 2, 3)]
    assert len(set(addresses)) == 3
    text = (DEPLOY / "compose.yaml").read_text()
    for i, address in enumerate(addresses, start=1):
        assert f"#   {address} node-{i}\n" in text  # what to write into /etc/hosts


def test_prometheus_scrapes_the_composed_nodes(compose: dict[str, Any]) -> None:
    nodes = sorted(name for name in compose["services"] if name.startswith("node-"))
    scraping = yaml.safe_load((DEPLOY / "prometheus-compose.yml").read_text())
    (job,) = scraping["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{name}:9464" for name in nodes]
    assert [f"./{name}" for name in scraping["rule_files"]] == ["./alerts.yml"]


def test_every_file_that_is_mounted_is_there(compose: dict[str, Any]) -> None:
    mounts = [it for service in compose["services"].values() for it in service.get("volumes", [])]
    sources = {mount.split(":")[0] for mount in mounts}
    files = {source for source in sources if source.startswith(".")}
    assert all((DEPLOY / source).exists() for source in files)
    assert sources - files == set(compose["volumes"])


# Kubernetes


def manifests() -> Iterator[dict[str, Any]]:
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


def manifest(kind: str, name: str = "streamlog") -> dict[str, Any]:
    (found,) = [it for it in manifests() if it["kind"] == kind and it["metadata"]["name"] == name]
    return found


@pytest.fixture
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = manifest("StatefulSet")["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    return dict(found)


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_the_manifests_are_valid(version: str) -> None:
    for each in manifests():
        kubernetes_validate.validate(each, version, strict=True)


def test_an_invalid_manifest_would_be_found() -> None:
    wrong = manifest("StatefulSet")
    wrong["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES_VERSIONS[0], strict=True)


def test_selectors_find_the_pods() -> None:
    labels = manifest("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert manifest("StatefulSet")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("Service")["spec"]["selector"] == labels
    assert manifest("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels


@pytest.mark.parametrize(
    ("kind", "name", "listeners"),
    [("StatefulSet", "streamlog", {"kafka"}), ("Deployment", "nats", {"nats"})],
)
def test_a_listener_without_authentication_is_for_few(
    kind: str, name: str, listeners: set[str]
) -> None:
    """Who reaches NATS may do to streams whatever the socket API lets them do: both have a lock."""
    template = manifest(kind, name)["spec"]["template"]
    policy = manifest("NetworkPolicy", name)["spec"]
    assert policy["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    assert policy["policyTypes"] == ["Ingress"]
    nodes = {
        "podSelector": {"matchLabels": manifest("StatefulSet")["spec"]["selector"]["matchLabels"]}
    }
    to_all = {
        port["port"] for rule in policy["ingress"] if "from" not in rule for port in rule["ports"]
    }
    to_few = {
        port["port"] for rule in policy["ingress"] if "from" in rule for port in rule["ports"]
    }
    (few,) = (rule["from"] for rule in policy["ingress"] if "from" in rule)
    assert nodes in few and len(few) == 2
    named = {port["name"] for it in template["spec"]["containers"] for port in it["ports"]}
    assert (to_few, to_all) == (listeners, {"http"})
    assert named == listeners | {"http"}


def pod_environment(container: dict[str, Any], index: int) -> dict[str, str]:
    """As Kubernetes makes it for one pod; a value refers to those before it."""
    fields = {
        "metadata.name": f"streamlog-{index}",
        "metadata.namespace": "default",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(index),
    }
    environment: dict[str, str] = {}
    for entry in container["env"]:
        if "valueFrom" in entry:
            value = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            value = re.sub(r"\$\((\w+)\)", lambda it: environment[it[1]], entry["value"])
        environment[entry["name"]] = value
    return environment


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_pod_is_configured(
    container: dict[str, Any], load: Any, tmp_path: Path, number: int
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(manifest("ConfigMap")["data"]["node.toml"])
    settings = load(file, pod_environment(container, number))
    assert settings.node.id == number
    assert settings.kafka.advertised_host == f"streamlog-{number}.streamlog.default.svc"
    me = configured_voters(settings.cluster.voters).by_id[settings.node.id]
    service = manifest("StatefulSet")["spec"]["serviceName"]
    assert service == manifest("Service")["metadata"]["name"]
    assert (me.host, me.port) == (f"streamlog-{number}.{service}", settings.kafka.port)
    mounts = {it["name"]: it["mountPath"] for it in container["volumeMounts"]}
    assert Path(mounts["data"]) == settings.node.data_dir.parent, "a volume's own folder is root's"
    assert container["args"][-1] == f"{mounts['config']}/node.toml"
    assert is_understood(container["args"])
    ports = {it["name"]: it["containerPort"] for it in container["ports"]}
    assert ports == {"kafka": settings.kafka.port, "http": settings.http.port}
    assert settings.kafka.host == settings.http.host == "0.0.0.0"


def test_ids_begin_with_one_and_all_pods_are_voters(load: Any, tmp_path: Path) -> None:
    spec = manifest("StatefulSet")["spec"]
    first = spec["ordinals"]["start"]
    file = tmp_path / "node.toml"
    file.write_text(manifest("ConfigMap")["data"]["node.toml"])
    voters = configured_voters(load(file).cluster.voters).ids
    assert voters == set(range(first, first + spec["replicas"])) == {1, 2, 3}


def test_a_first_start_does_not_wait_for_itself() -> None:
    """No node is ready before the quorum is, so they must start together and find each other."""
    assert manifest("StatefulSet")["spec"]["podManagementPolicy"] == "Parallel"
    assert manifest("Service")["spec"]["publishNotReadyAddresses"] is True
    assert manifest("Service")["spec"]["clusterIP"] == "None"


def test_a_pod_stops_in_order(pod: dict[str, Any], container: dict[str, Any]) -> None:
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    assert is_understood(command)
    assert command[command.index("--node-config") + 1] == container["args"][-1]
    waits_s = int(command[command.index("--timeout") + 1])
    assert pod["terminationGracePeriodSeconds"] * 1000 > waits_s * 1000 + GRACE_MS
    assert manifest("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_probes_ask_with_the_settings_of_the_node(
    container: dict[str, Any], compose: dict[str, Any]
) -> None:
    """So they find the address, and TLS where the node speaks it."""
    live, ready = (container[f"{kind}Probe"] for kind in ("liveness", "readiness"))
    asks = ["streamlog", "health", *container["args"][-2:]]
    assert live["exec"]["command"] == asks
    assert [it for it in ready["exec"]["command"] if it != "--ready"] == asks
    node = compose["services"]["node-1"]
    kind, *composed = node["healthcheck"]["test"]
    assert (kind, composed[-2:]) == ("CMD", node["command"][-2:])
    text = (ROOT / "Dockerfile").read_text()
    (bare,) = re.findall(r"^HEALTHCHECK .*CMD (\[.+\])$", text, re.MULTILINE)
    for command in (asks, ready["exec"]["command"], composed, json.loads(bare)):
        assert command[:2] == ["streamlog", "health"]
        assert is_understood(command)


def test_a_probe_has_more_time_than_it_gives_the_node(
    container: dict[str, Any], compose: dict[str, Any]
) -> None:
    """Else it is killed before it can say what is wrong."""
    for kind in ("liveness", "readiness"):
        probe = container[f"{kind}Probe"]
        assert TIMEOUT_S < probe["timeoutSeconds"] <= probe["periodSeconds"]
    assert int(compose["services"]["node-1"]["healthcheck"]["timeout"].rstrip("s")) > TIMEOUT_S


def test_a_pod_may_do_little(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    uid = re.search(r"useradd .*--uid (\d+)", (ROOT / "Dockerfile").read_text())
    assert uid is not None
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == int(uid[1])
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_images_data_folder_is_for_its_own_account() -> None:
    """A new volume has the rights of the image's folder."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.search(
        r"install -d -m 0700 -o streamlog \S+ \S+ /var/lib/streamlog$", dockerfile, re.M
    )


def test_no_variable_of_kubernetes_is_taken_for_a_setting(pod: dict[str, Any]) -> None:
    """Of a Service named streamlog it would set STREAMLOG_SERVICE_HOST, which a node refuses."""
    assert pod["enableServiceLinks"] is False
