"""An HTTP address that cannot be listened on, told by the setting that is to blame."""

import errno

from streamlog.errors import ConfigError


def unbound(error: OSError, host: str, port: int, *, keys: str) -> ConfigError:
    """What to raise; ``keys`` is how the names of the settings begin, before host and port."""
    if error.errno == errno.EADDRINUSE:
        problem, remedy = f"{port} is in use on {host}", "stop what uses it or choose another port"
        return ConfigError(f"{keys}port", problem, remedy)
    if error.errno == errno.EACCES:
        return ConfigError(f"{keys}port", f"{port} is not allowed", "choose a port above 1023")
    return ConfigError(f"{keys}host", f"cannot listen on {host} ({error})", "name an own address")
