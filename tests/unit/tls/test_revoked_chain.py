"""What is revoked of a chain of CAs: the certificate itself, or an intermediate CA."""

import ssl
from pathlib import Path

import pytest

from tests.certificate_authority import CertificateAuthority, Issued


class Chain:
    """A root, an intermediate CA of it, and a client of that one."""

    def __init__(self, directory: Path) -> None:
        self.root, self.middle = (
            CertificateAuthority(directory / "root"),
            CertificateAuthority(directory / "middle"),
        )
        self.middle._ca = self.root._ca.create_child_ca()
        cert = directory / "intermediate.pem"
        self.middle._ca.cert_pem.write_to_path(cert)
        self.intermediate = Issued(cert, cert)
        self.client = self.middle.issue("client")

    def lists(self, of_root: list[Issued], of_middle: list[Issued]) -> Path:
        path = self.root.directory / "all.pem"
        lists = (self.root.revoke(*of_root), self.middle.revoke(*of_middle))
        path.write_bytes(b"".join(it.read_bytes() for it in lists))
        return path

    def is_let_in(self, crl: Path) -> bool:
        server = self.root.server(self.root.issue("node"), "required", crl)
        sides = [ssl.MemoryBIO() for _ in range(4)]
        ours = server.wrap_bio(sides[0], sides[1], server_side=True)
        theirs = self.root.client(self.client).wrap_bio(
            sides[1], sides[0], server_hostname="localhost"
        )
        for _ in range(8):
            for side in (theirs, ours):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLCertVerificationError as error:
                    assert "revoked" in str(error)
                    return False
        return ours.getpeercert() is not None


@pytest.mark.parametrize(
    ("revoked", "let_in"), [("nothing", True), ("the client", False), ("the CA", False)]
)
def test_what_is_revoked_anywhere_in_the_chain_is_refused(
    tmp_path: Path, revoked: str, let_in: bool
) -> None:
    chain = Chain(tmp_path)
    crl = chain.lists(
        [chain.intermediate] if revoked == "the CA" else [],
        [chain.client] if revoked == "the client" else [],
    )
    assert chain.is_let_in(crl) is let_in
