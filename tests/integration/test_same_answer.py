"""A node in trouble: whoever is asked says the same, and names the node, the reason, the remedy.

The rows of "The same answer from everyone" in docs/observing.md: each state is brought about once,
and everybody is asked in it.
"""

import json
import os
import re
import signal
import socket
import ssl
import struct
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificate_authority import CertificateAuthority
from tests.integration.everyone import Everyone, Row
from tests.integration.slow_line import SlowLine
from tests.small_disk import mounted
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import wait_until

pytestmark = pytest.mark.slow

BARE = Path(__file__).parents[1] / "bare"
"""Has what sets the clock."""
STREAM = "orders"
FAST: dict[str, dict[str, object]] = {"cluster": {"leader_rebalance_ms": 300}}
DISK_BYTES = 48 << 20
WELL = Row()


class Certified(NodeProcess):
    """With a certificate of its own, and HTTP in the clear."""

    authority: CertificateAuthority

    def configure(self, settings: dict[str, dict[str, object]]) -> None:
        own = self.authority.issue(f"node-{self.number}").settings()
        ca = {"ca": str(self.authority.ca), "reload_check_ms": 200}
        super().configure({**settings, "tls": {**own, **ca}, "http": self.https()})

    def https(self) -> dict[str, object]:
        return {"tls": False}


class Keyed(NodeProcess):
    """With a key to encrypted streams, while there is one."""

    key: Path

    def configure(self, settings: dict[str, dict[str, object]]) -> None:
        if self.key.exists():
            named: dict[str, dict[str, object]] = {
                "encryption": {"active_key": "k"},
                "encryption.keys": {"k": f"file:{self.key}"},
            }
            settings = {**settings, **named}
        super().configure(settings)


class Behind(NodeProcess):
    """Node 1 reaches NATS by way of something slow."""

    slow: SlowLine

    def configure(self, settings: dict[str, dict[str, object]]) -> None:
        if self.number == 1:
            (url,) = settings["nats"]["servers"]  # type: ignore[misc]
            self.slow = SlowLine(int(str(url).rpartition(":")[2]))  # type: ignore[has-type]
            servers = [f"nats://127.0.0.1:{self.slow.port}"]
            settings = {**settings, "nats": {**settings["nats"], "servers": servers}}
        super().configure(settings)


class CertifiedTwice(Certified):
    """With another certificate for HTTP."""

    def https(self) -> dict[str, object]:
        own = self.authority.issue(f"http-{self.number}")
        return {"tls_cert": str(own.cert), "tls_key": str(own.key)}

    def http(self, path: str) -> tuple[int, str]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = f"https://{self.host}:{self.http_port}{path}"
        try:
            with urllib.request.urlopen(address, timeout=2, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    Certified.authority = CertificateAuthority(tmp_path / "ca")
    return Certified.authority


def make_stream(cluster: Cluster, *login: str) -> None:
    made = ("stream", "add", STREAM, "--partitions", "6", "--replicas", "3")
    cluster.command(*made, *login)
    wait_until(lambda: led(cluster, 1) == 2, "node 1 does not lead")


def led(cluster: Cluster, number: int) -> int:
    """How many partitions this node leads, by the page of node 2."""
    rows = json.loads(cluster[2].http(f"/api/partitions?stream={STREAM}")[1])["rows"]
    return [it["leader"] for it in rows].count(number)


def test_its_certificate_has_expired(tmp_path: Path, authority: CertificateAuthority) -> None:
    """While it runs, and read so at its start."""
    row = Row(
        code="SL-0601",
        ready=("certificate", "its certificate has expired"),
        page="critical: Node 1 (this one): its certificate has expired",
        others="critical: Node 1: its certificate has expired",
        doctor=(
            "CRITICAL node: Node 1: its certificate has expired",
            "CRITICAL certificates: tls.cert: ",
            f"-> renew {authority.directory / 'node-1.pem'}",
        ),
        log="this node cannot lead reason=certificate",
        alerts=frozenset({"NodeIsUnfit", "CertificateExpires", "CertificateExpiresSoon"}),
        check=("Node 1: its certificate has expired",),
        state="live, certificate trouble",
    )
    ca = ("--tls-ca", str(authority.ca))
    with Cluster(tmp_path, settings=FAST, make_node=Certified) as cluster:
        make_stream(cluster, *ca)
        with Everyone(cluster, *ca) as everyone:
            moved = everyone.command(
                "cluster", "transfer-controller", "1", "--bootstrap-server", cluster.servers, *ca
            )
            assert moved.code == 0, moved
            everyone.mark()
            authority.issue("node-1", days=5 / 86_400)
            everyone.agree(row)
            assert cluster[2].metric("streamlog_quorum_controller") in (2, 3)
            assert led(cluster, 1) == 0
            blamed = [it for it in everyone.log(1) if "our certificate has expired" in it]
            assert all("streamlog doctor" in it and "client sends" not in it for it in blamed)
            cluster.kill(1)
            authority.issue("node-1", days=-1)
            everyone.mark()
            cluster[1].spawn()
            everyone.agree(row)
            authority.issue("node-1")
            wait_until(lambda: led(cluster, 1) == 2, "the remedy has not helped")
            everyone.mark()  # until it has read the new one, peers refuse the old one
            everyone.agree(WELL)


def test_the_certificate_of_its_http_has_expired(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    """It leads on. Prometheus, which looks at certificates, cannot ask it any more."""
    row = Row(
        code="SL-0601",
        other_codes=frozenset({"alerts"}),
        page="critical: Node 1 (this one): the certificate of its HTTP has expired",
        others="critical: Node 1: the certificate of its HTTP has expired",
        doctor=(
            "CRITICAL certificates: http.tls_cert: ",
            f"-> renew {authority.directory / 'http-1.pem'}",
        ),
        log="this node is not well reason=http_certificate",
        alerts=frozenset({"NodeIsNotScraped"}),
        check=("Node 1: the certificate of its HTTP has expired",),
        state="live, http_certificate trouble",
    )
    ca = authority.ca
    with Cluster(tmp_path, settings=FAST, make_node=CertifiedTwice) as cluster:
        make_stream(cluster, "--tls-ca", str(ca))
        with Everyone(cluster, "--tls-ca", str(ca), https_ca=ca) as everyone:
            everyone.mark()
            authority.issue("http-1", days=5 / 86_400)
            everyone.agree(row)
            assert led(cluster, 1) == 2
            authority.issue("http-1")
            everyone.mark()
            everyone.agree(WELL)


def run_ahead(cluster: Cluster, number: int, seconds: int) -> None:
    """Start this node again with such a clock."""
    cluster.kill(number)
    node = cluster[number]
    path = os.pathsep.join(filter(None, (str(BARE), os.environ.get("PYTHONPATH"))))
    wrong = (f"TEST_CLOCK_AHEAD_S={seconds}", f"PYTHONPATH={path}")
    node.command = ["env", *wrong, *node.command[-4:]]
    node.spawn()


def test_its_clock_is_wrong(tmp_path: Path) -> None:
    row = Row(
        code="SL-0105",
        ready=("clock", "its clock is 600.0 s ahead of that of most nodes"),
        page="critical: Node 1 (this one): its clock is 600.0 s ahead of that of most nodes",
        others="critical: Node 1: its clock is wrong",
        doctor=("CRITICAL node: Node 1: its clock is 600.0 s ahead",),
        log="this node cannot lead reason=clock",
        alerts=frozenset({"NodeIsUnfit", "ClockIsWrong"}),
        check=("Node 1: its clock is wrong",),
        state="live, clock trouble",
    )
    with Cluster(tmp_path, settings=FAST) as cluster, Everyone(cluster) as everyone:
        make_stream(cluster)
        everyone.mark()
        run_ahead(cluster, 1, 600)
        everyone.agree(row)
        assert led(cluster, 1) == 0
        run_ahead(cluster, 1, 0)
        everyone.mark()
        wait_until(lambda: led(cluster, 1) == 2, "the remedy has not helped")


def test_nobody_can_say_whose_clock_is_wrong(tmp_path: Path) -> None:
    """Of three, each shows another time."""
    row = Row(
        page="warning: Node 1 (this one): its clock is 600.0 s ahead of the controller's",
        log="this node needs care reason=clock",
        alerts=frozenset({"ClockIsWrong"}),
    )
    with Cluster(tmp_path, settings=FAST) as cluster, Everyone(cluster) as everyone:
        make_stream(cluster)
        cluster.command("cluster", "transfer-controller", "2")
        everyone.mark()
        run_ahead(cluster, 3, -600)
        run_ahead(cluster, 1, 600)
        for node in cluster.running():  # the first one to be back may be told that it is wrong
            node.wait_ready()
        wait_until(lambda: led(cluster, 1) == 2, "it does not lead")
        assert cluster.controller() == 2
        wait_until(lambda: _says_warning(everyone), "its page says nothing")
        assert everyone.ready(1) == (200, {})
        wait_until(lambda: any(str(row.log) in it for it in everyone.log(1)), "nor does its log")
        assert everyone.check().code == 0
        if everyone.alerts is not None:
            wait_until(lambda: "ClockIsWrong" in everyone.alerts.firing(), "no alert")  # type: ignore[union-attr]
            assert "NodeIsUnfit" not in everyone.alerts.firing()


def _says_warning(everyone: Everyone) -> bool:
    return any("its clock is 600.0 s ahead of the controller's" in it for it in everyone.page(1))


def test_its_disk_is_full(tmp_path: Path) -> None:
    row = Row(
        code="SL-0301",
        ready=("disk", "its disk is full"),
        page="critical: Node 1 (this one): its disk is full",
        others="critical: Node 1: its disk is full",
        doctor=(
            "CRITICAL node: Node 1: its disk is full",
            " disk: ",
            "of 48.0 MiB are free",
        ),
        log="this node cannot lead reason=disk",
        alerts=frozenset({"NodeIsUnfit", "DiskIsFull", "PartitionsAreUnderReplicated"}),
        check=("Node 1: its disk is full", "is not in sync on node 1"),
        state="live, full",
    )
    with mounted(tmp_path / "small", DISK_BYTES) as small:

        def node(number: int, directory: Path) -> NodeProcess:
            folder = small / "data" if number == 1 else None
            return NodeProcess(number, directory, data_dir=folder)

        with Cluster(tmp_path, settings=FAST, make_node=node) as cluster:
            make_stream(cluster)
            with Everyone(cluster) as everyone:
                everyone.mark()
                ballast = small / "ballast"
                with ballast.open("wb") as file:
                    fill(file.fileno())
                payload = "x" * 60_000
                for number in range(6):
                    name = f"{STREAM}.{number}" if number else STREAM
                    everyone.command("publish", name, payload, "--count", "20")
                everyone.agree(row)
                assert led(cluster, 1) == 0
                ballast.unlink()
                everyone.mark()
                wait_until(lambda: led(cluster, 1) == 2, "the remedy has not helped")
                everyone.agree(WELL)


def fill(descriptor: int) -> None:
    """All of the file system that it is on."""
    for size in (1 << 20, 1 << 12):
        try:
            while True:
                os.write(descriptor, bytes(size))
        except OSError:
            continue


def test_the_quorum_is_lost(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster, Everyone(cluster) as everyone:
        make_stream(cluster)
        everyone.mark()
        cluster.kill(2, 3)
        row = Row(
            code="SL-0102",
            other_codes=frozenset({"log"}),
            ready=("cluster", "no word from the controller"),
            page="critical: No controller is known",
            doctor=(
                "CRITICAL node: Node 1 is not ready: no word from the controller",
                "CRITICAL cluster: No controller is known",
                "1 of the 3 nodes of cluster test are reached",
            ),
            log="leader unreachable node=",
            alerts=frozenset({"NoController", "LeaseIsLost", "NodeIsNotScraped"}),
            check=(
                "No controller is known: 1 of 3 voters answer, and 2 are needed",
                f"Node 2 at {cluster[2].kafka} does not answer",
                f"Node 3 at {cluster[3].kafka} does not answer",
            ),
            state="answers",
        )
        everyone.agree(row)
        assert any("Node 2 at" in it and "does not answer" in it for it in everyone.page(1))
        told = everyone.command("cluster", "info", "--bootstrap-server", cluster.servers)
        assert "Controller  none: " in told.text and "streamlog cluster check" in told.text
        told = everyone.command("publish", STREAM, "x", "--ack")
        assert told.code == 1 and "streamlog cluster check" in told.text
        cluster.start(2, 3)
        everyone.mark()
        everyone.agree(WELL)


def test_hangup(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster, Everyone(cluster) as everyone:
        make_stream(cluster)
        everyone.mark()
        os.kill(cluster[1].pid, signal.SIGHUP)
        wait_until(lambda: "SIGHUP: there are no" in cluster[1].log_text(), "it is not said")
        everyone.agree(WELL)
        assert led(cluster, 1) == 2


def receive(sock: socket.socket) -> bytes:
    """A whole answer: OpenSSL takes what is left of it for a fault when the connection ends."""
    answer = bytearray()
    while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
        answer += sock.recv(4096)
    return bytes(answer)


def leave(sock: socket.socket) -> None:
    sock.close()


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def part(sock: socket.socket) -> None:
    """As TLS has it: the other side hears of it, and says the same."""
    assert isinstance(sock, ssl.SSLSocket)
    sock.unwrap().close()


@pytest.mark.parametrize(
    "ends", [(leave, reset), (leave, reset, part)], ids=["in the clear", "tls"]
)
def test_clients_leave(
    tmp_path: Path,
    authority: CertificateAuthority,
    ends: tuple[Callable[[socket.socket], None], ...],
) -> None:
    is_tls = part in ends
    make, options = NodeProcess, tuple[str, ...]()
    if is_tls:
        make, options = Certified, ("--tls-ca", str(authority.ca))
    context = ssl.create_default_context(cafile=authority.ca)
    with Cluster(tmp_path, make_node=make) as cluster, Everyone(cluster, *options) as everyone:
        make_stream(cluster, *options)
        everyone.mark()
        asked = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # ApiVersions
        for end in ends:
            for said in (b"", asked):
                sock = socket.create_connection((cluster[1].host, cluster[1].kafka_port), 5)
                if is_tls:
                    sock = context.wrap_socket(sock, server_hostname="localhost")
                sock.sendall(said)
                if said:
                    assert receive(sock)
                end(sock)
        everyone.agree(WELL)


def test_nats_is_gone(tmp_path: Path) -> None:
    row = Row(
        code="SL-0401",
        ready=("nats", "not connected to NATS: nothing is taken in, reads go on"),
        page="critical: Node 1 (this one): not connected to NATS",
        others="critical: Node 1: it is not connected to NATS",
        doctor=(
            "CRITICAL node: Node 1: not connected to NATS",
            "CRITICAL nats: NATS at nats://127.0.0.1:",
        ),
        log="NATS connection lost",
        alerts=frozenset({"NatsIsNotThere"}),
        check=tuple(f"Node {i}: it is not connected to NATS" for i in (1, 2, 3)),
        state="live, nats trouble",
    )
    with Cluster(tmp_path) as cluster, Everyone(cluster) as everyone:
        make_stream(cluster)
        everyone.mark()
        cluster.nats.kill()
        everyone.agree(row)
        assert led(cluster, 1) == 2
        cluster.nats.start()
        for node in cluster.running():
            node.wait_ready()
        everyone.mark()
        everyone.agree(WELL)


def test_another_node_is_dead_or_hangs(tmp_path: Path) -> None:
    """Of node 1, which is well: it and all others tell of node 3."""
    row = Row(
        code="SL-0101",
        page=" is gone -> Start it",
        others=" is gone -> Start it",
        log=None,
        alerts=frozenset({"NodeIsGone", "NodeIsNotScraped", "PartitionsAreUnderReplicated"}),
        check=("Node 3 at ", f"{STREAM}/0 is not in sync on node 3"),
    )
    with Cluster(tmp_path) as cluster, Everyone(cluster) as everyone:
        make_stream(cluster)
        everyone.mark()
        cluster.kill(3)
        refused = ("CRITICAL network: voter 3 ", "Connection refused", "-> start the node")
        everyone.agree(row._replace(doctor=refused), 1, 2)
        assert "node is gone node=3" in "".join(everyone.log(1) + everyone.log(2))
        cluster.start(3)
        everyone.mark()
        everyone.agree(WELL)
        cluster[3].pause()
        hangs = ("CRITICAL network: voter 3 ", "whether the process hangs")
        everyone.agree(row._replace(doctor=hangs), 1, 2)
        assert "session over node=3" in "".join(everyone.log(1) + everyone.log(2))
        own = everyone.doctor(3)
        assert own.code == 1 and "CRITICAL node: Node 3 does not answer" in own.text
        cluster[3].resume()
        wait_until(lambda: everyone.check().code == 0, "it does not come back")
        everyone.mark()
        everyone.agree(WELL)


def test_a_folder_of_its_cannot_be_opened(tmp_path: Path) -> None:
    """It does not catch up, and does not say so."""
    row = Row(
        code="SL-0204",
        other_codes=frozenset({"others", "check"}),
        ready=("partitions", f"1 partition is not written until this is repaired: {STREAM}"),
        page=f"critical: 1 partition cannot be written on this node, such as {STREAM}",
        others="warning: 1 partition not in sync on every replica",
        doctor=("CRITICAL node: Node 1 is not ready: 1 partition is not written",),
        log="partition offline stream=orders partition=0",
        alerts=frozenset({"PartitionsHaveFailed", "PartitionsAreUnderReplicated"}),
        check=(f"{STREAM}/0 is not in sync on node 1",),
    )
    with Cluster(tmp_path) as cluster, Everyone(cluster) as everyone:
        make_stream(cluster)
        cluster.kill(1)
        folder = cluster[1].data_dir / "streams" / STREAM / "0"
        kept = folder.rename(tmp_path / "kept")
        folder.write_text("no folder")
        everyone.mark()
        cluster[1].spawn()
        everyone.agree(row)
        cluster.kill(1)
        folder.unlink()
        kept.rename(folder)
        cluster.start(1)
        everyone.mark()
        everyone.agree(WELL)


def test_its_last_replica_has_lost_records(tmp_path: Path) -> None:
    """They were acknowledged. It leads on, and says so until somebody knows of it."""
    row = Row(
        code="SL-0303",
        page="critical: Node 1 (this one): 1 partition has lost records that were acknowledged, and"
        " no other replica has them, such as ",
        others="critical: Node 1: it has lost records that were acknowledged",
        doctor=("CRITICAL node: Node 1: it has lost records that were acknowledged",),
        log="this node is not well reason=lost_records",
        alerts=frozenset({"RecordsAreLost"}),
        check=("Node 1: it has lost records that were acknowledged, and no other replica has",),
        state="live, lost_records trouble",
    )
    with Cluster(tmp_path) as cluster, Everyone(cluster) as everyone:
        made = ("stream", "add", STREAM, "--partitions", "6", "--replicas", "1")
        cluster.command(*made)
        wait_until(lambda: led(cluster, 1) == 2, "node 1 does not lead")
        rows = json.loads(cluster[2].http(f"/api/partitions?stream={STREAM}")[1])["rows"]
        number = next(it["partition"] for it in rows if it["leader"] == 1)
        subject = f"{STREAM}.{number}" if number else STREAM
        for text in ("kept", "lost", "lost"):
            assert everyone.command("publish", subject, text, "--ack").code == 0
        cluster[1].stop()
        log = cluster[1].data_dir / "streams" / STREAM / str(number) / f"{0:020}.log"
        first_batch = 12 + int.from_bytes(log.read_bytes()[8:12], "big")
        os.truncate(log, first_batch)
        everyone.mark()
        cluster[1].spawn()
        everyone.agree(row)
        (told,) = everyone.page(1)
        assert f"{STREAM}/{number}: offsets 1 to 2 (" in told, told
        assert everyone.command("publish", subject, "new", "--ack").code == 0
        cluster.kill(1)
        everyone.mark()
        cluster[1].spawn()
        everyone.agree(row)
        (log.parent / "lost-end").unlink()
        everyone.agree(
            row._replace(
                code="", page="", others="", doctor=(), alerts=frozenset(), check=(), state="live"
            )
        )


def test_it_lacks_the_key_of_an_encrypted_stream(tmp_path: Path) -> None:
    row = Row(
        code="SL-0204",
        other_codes=frozenset({"others", "check"}),
        ready=("partitions", f"6 partitions are not written until this is repaired: {STREAM}-"),
        page="name one as encryption.active_key -> Give this node the key, and",
        others="warning: 6 partitions not in sync on every replica",
        doctor=("CRITICAL node: Node 1 is not ready: 6 partitions are not written",),
        log='encryption.active_key" code=SL-0204 remedy="give this node the key, and start it again',
        alerts=frozenset({"PartitionsHaveFailed", "PartitionsAreUnderReplicated"}),
        check=tuple(f"{STREAM}/{number} is not in sync on node 1" for number in range(6)),
    )
    Keyed.key = tmp_path / "key"
    Keyed.key.write_text(b64encode(os.urandom(32)).decode())
    Keyed.key.chmod(0o600)
    with (
        Cluster(tmp_path, settings=FAST, make_node=Keyed) as cluster,
        Everyone(cluster) as everyone,
    ):
        made = ("--partitions", "6", "--replicas", "3", "--encrypted")
        cluster.command("stream", "add", STREAM, *made)
        wait_until(lambda: led(cluster, 1) == 2, "node 1 does not lead")
        cluster.kill(1)
        kept = Keyed.key.rename(tmp_path / "kept")
        cluster[1].configure(cluster.settings_of(cluster[1]))
        everyone.mark()
        cluster[1].spawn()
        everyone.agree(row)
        assert led(cluster, 1) == 0
        assert not any("repair the disk" in it.lower() for it in everyone.page(1) + everyone.log(1))
        cluster.kill(1)
        kept.rename(Keyed.key)
        cluster[1].configure(cluster.settings_of(cluster[1]))
        cluster.start(1)
        everyone.mark()
        wait_until(lambda: led(cluster, 1) == 2, "the remedy has not helped")
        everyone.agree(WELL)


def test_nats_is_slow(tmp_path: Path) -> None:
    """It answers, so that nothing is lost or refused; publishers wait until they give up."""
    row = Row(
        code="SL-0403",
        other_codes=frozenset({"doctor"}),
        page="critical: Node 1 (this one): NATS answers it after ",
        others="critical: Node 1: NATS answers it late",
        doctor=("CRITICAL nats: NATS at nats://127.0.0.1:", ": NATS does not answer in time"),
        log="this node is not well reason=slow_nats",
        alerts=frozenset({"NatsIsSlow"}),
        check=("Node 1: NATS answers it late: its publishers and the management API wait",),
        state="live, slow_nats trouble",
    )
    with Cluster(tmp_path, make_node=Behind) as cluster, Everyone(cluster) as everyone:
        make_stream(cluster)
        everyone.mark()
        node = cluster[1]
        assert isinstance(node, Behind)
        node.slow.delay_s = 2.0
        everyone.agree(row)
        assert led(cluster, 1) == 2
        node.slow.delay_s = 0.0
        wait_until(lambda: not everyone.page(1), "it does not notice")
        everyone.mark()
        everyone.agree(WELL)


def test_a_client_is_over_its_quota(tmp_path: Path) -> None:
    """It is told to wait, and the metrics count that. Nothing is wrong with a node."""
    from confluent_kafka import Producer

    with Cluster(tmp_path) as cluster, Everyone(cluster) as everyone:
        make_stream(cluster)
        cluster.command("quota", "set", "loader", "--producer-byte-rate", "1000")
        everyone.mark()
        throttled: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": cluster.servers,
                "client.id": "loader",
                "throttle_cb": throttled.append,
            }
        )
        for _ in range(100):
            producer.produce(STREAM, bytes(1000), partition=0)
            producer.flush(0.05)
        wait_until(lambda: bool(throttled) or producer.poll(0.1) < 0, "it is not told to wait")
        everyone.agree(WELL)
        told = "".join(node.http("/metrics")[1] for node in cluster.running())
        assert re.search(
            r'^streamlog_throttled_requests_total\{quota="produce"\} [1-9]', told, re.M
        )
        assert re.search(r"^loader +1 000 ", cluster.command("quota", "ls"), re.M)
        producer.purge()
