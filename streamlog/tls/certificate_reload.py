"""The task that reads a node's certificates again: when their files have changed, and at SIGHUP.

Certificates that are renewed under a running node are used from the next connection on.
"""

import asyncio
import contextlib
import logging
from datetime import UTC, datetime

from streamlog.errors import ConfigError
from streamlog.metrics import NodeMetrics
from streamlog.tls.certificate import CERTIFICATE_ENDS, SOON
from streamlog.tls.certificates import Certificates
from streamlog.tls.watched_context import CERTIFICATES_NOT_RELOADED

logger = logging.getLogger(__name__)


class CertificateReload:
    """Looks at the files now and then, and when it is asked to (SIGHUP)."""

    def __init__(self, certificates: Certificates, metrics: NodeMetrics, check_ms: int) -> None:
        self._certificates = certificates
        self._metrics = metrics
        self._check_s = check_ms / 1000 or None
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Load what is there now, changed or not."""
        self._asked.set()

    async def run(self) -> None:
        self._show()
        problem: ConfigError | None = None
        while True:
            asked = await self._asked_in_time()
            if asked or await self._certificates.have_changed():
                problem = await self._reload()
                if problem is None or not asked:
                    continue  # a key comes a moment after its certificate: what stays is told
            if problem is not None:
                self._complain(problem)
                problem = None

    async def _asked_in_time(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._check_s):
                await self._asked.wait()
            self._asked.clear()
            return True
        return False

    async def _reload(self) -> ConfigError | None:
        """What is wrong with the new ones."""
        try:
            # In a thread, and not by aiofiles: OpenSSL reads the files itself.
            await asyncio.to_thread(self._certificates.reload)
        except ConfigError as problem:
            return problem
        self._metrics.tls_reloads.labels("loaded").inc()
        self._show()
        return None

    def _complain(self, problem: ConfigError) -> None:
        self._metrics.tls_reloads.labels("failed").inc()
        extra = {"key": problem.key, "problem": problem.problem, "remedy": problem.remedy}
        logger.error(CERTIFICATES_NOT_RELOADED, extra=extra)

    def _show(self) -> None:
        now = datetime.now(UTC)
        for listener, certificate in self._certificates.shown.items():
            until = certificate.not_after
            self._metrics.tls_certificate_not_after.labels(listener).set(until.timestamp())
            extra = {
                "listener": listener,
                "subject": certificate.subject,
                "not_after": f"{until:%F %T} UTC",
            }
            if until <= now:
                logger.error(
                    CERTIFICATE_ENDS.logged_as("certificate has expired: renew it"), extra=extra
                )
            elif until - now < SOON:
                logger.warning(
                    CERTIFICATE_ENDS.logged_as("certificate expires soon: renew it"), extra=extra
                )
            else:
                logger.info("certificate loaded", extra=extra)
