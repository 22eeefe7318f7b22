"""The options ``security.*``, of reads and of writes."""

from pyspark_streamlog.options.option_map import OptionMap
from streamlog.arrow.options.security_files import SecurityFiles


def parse_security(given: OptionMap) -> SecurityFiles:
    """Raises ConfigError."""
    is_given = given.text("security.tls") is not None
    return SecurityFiles(
        tls=given.boolean("security.tls", default=False) if is_given else None,
        ca_file=given.text("security.caFile"),
        cert_file=given.text("security.certFile"),
        key_file=given.text("security.keyFile"),
        key_password_file=given.text("security.keyPasswordFile"),
        user=given.text("security.user"),
        password_file=given.text("security.passwordFile"),
        token_file=given.text("security.tokenFile"),
        mechanism=given.text("security.mechanism"),
        spelling="camelCase",
    )
