"""How long certificates last, and when that is too short."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamlog.cli.doctor.certificates import examine
from streamlog.config import Settings
from streamlog.findings import Finding
from tests.certificate_authority import CertificateAuthority


def found(**sections: Any) -> list[Finding]:
    settings = Settings(**{"node": {"data_dir": "/d"}, **sections})
    return list(examine(settings, datetime.now(UTC)))


def test_without_certificates_there_is_nothing_to_say() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("days", "state", "said"),
    [
        (-1, "critical", "has expired at"),
        (1.5, "critical", "in 1 days"),
        (2.5, "warning", "in 2 days"),
        (13.5, "warning", "in 13 days"),
        (14.5, "ok", "in 14 days"),
    ],
)
def test_the_sooner_the_worse(tmp_path: Path, days: float, state: str, said: str) -> None:
    issued = CertificateAuthority(tmp_path).issue("node", days=days)
    (finding,) = found(tls=issued.settings())
    assert finding.severity == state
    assert finding.what.startswith("tls.cert: CN=node") and said in finding.what
    assert (str(issued.cert) in finding.remedy) == (state != "ok")
    assert finding.measured == {"left_seconds": pytest.approx(days * 86400, abs=60)}


def test_every_file_counts_and_once(tmp_path: Path) -> None:
    authority, other = (
        CertificateAuthority(tmp_path / "ca"),
        CertificateAuthority(tmp_path / "other"),
    )
    node, page = authority.issue("node", days=90), authority.issue("page", days=3)
    to_nats = other.issue("to-nats", days=-1)
    tls = {**node.settings(), "client_ca": authority.ca, "ca": authority.ca}
    http = {"tls_cert": page.cert, "tls_key": page.key}
    nats = {"tls_cert": to_nats.cert, "tls_key": to_nats.key, "tls_ca": other.ca}
    states = {it.what.partition(":")[0]: it.severity for it in found(tls=tls, http=http, nats=nats)}
    assert states == {
        "tls.cert": "ok",
        "tls.client_ca": "ok",
        "http.tls_cert": "warning",
        "nats.tls_cert": "critical",
        "nats.tls_ca": "ok",
    }


def test_of_a_chain_the_first_to_expire_counts_of_cas_the_last(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    node, old = authority.issue("node", days=90), authority.issue("old", days=-5)
    chain = tmp_path / "chain.pem"
    chain.write_bytes(node.cert.read_bytes() + old.cert.read_bytes())
    tls = {"cert": chain, "key": node.key, "client_ca": chain}
    own = found(tls=tls)[0]
    assert (own.severity, "CN=old" in own.what) == ("critical", True)
    apart = {**node.settings(), "client_ca": chain}
    assert [it.severity for it in found(tls=apart)] == ["ok", "ok"]


def test_what_is_no_certificate_is_said(tmp_path: Path) -> None:
    issued = CertificateAuthority(tmp_path).issue("node")
    issued.cert.write_text("nonsense")
    gone = tmp_path / "gone.pem"
    first, second = found(tls={**issued.settings(), "client_ca": gone})
    assert (first.severity, "does not hold a certificate" in first.what) == ("critical", True)
    assert (second.severity, "cannot be read" in second.what) == ("critical", True)


@pytest.mark.parametrize(("days", "state"), [(-0.5, "critical"), (0.5, "ok")])
def test_a_list_of_revocations_holds_until_the_next_one(
    tmp_path: Path, days: float, state: str
) -> None:
    authority = CertificateAuthority(tmp_path)
    issued = authority.issue("node", days=90)
    crl = authority.revoke(authority.issue("bad", days=90))  # the next one is due in a day
    settings = Settings(
        node={"data_dir": "/d"},
        tls={**issued.settings(), "client_ca": authority.ca, "crl": crl},
    )
    then = datetime.now(UTC) + timedelta(days=1 - days)
    finding = list(examine(settings, then))[-1]
    assert (finding.severity, "tls.crl" in finding.what) == (state, True)
    crl.write_text("nonsense")
    assert list(examine(settings, then))[-1].severity == "critical"
