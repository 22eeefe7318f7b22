"""docs/security.md quotes messages as the code has them."""

import re
from pathlib import Path

import pytest

from streamlog.app.listen_check import check_exposure
from streamlog.config import load_settings
from streamlog.errors import ConfigError

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text()
OF_OPENSSL = {"certificate revoked", "unable to get local issuer certificate"}


def test_an_open_listener_is_refused_as_quoted(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[node]\nid = 1\ndata_dir = "data"\n[kafka]\nhost = "0.0.0.0"\n')
    with pytest.raises(ConfigError) as caught:
        check_exposure(load_settings(file))
    assert f"    streamlog: {caught.value}\n" in PAGE


def test_why_tls_failed_is_quoted_as_it_is_logged() -> None:
    code = "".join(
        (ROOT / "streamlog" / name).read_text() for name in ("tls/errors.py", "wire/framing.py")
    )
    table = PAGE.partition("### When a certificate is refused")[2].partition("\n### ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    quoted = set(re.findall(r"`([^`]+)`", "\n".join(rows))) - OF_OPENSSL
    assert len(quoted) >= 9
    for text in quoted:
        fixed = re.sub(r"^frame of .*\(|[:)].*$", "", text).removesuffix(" expired")
        assert fixed in code, text
