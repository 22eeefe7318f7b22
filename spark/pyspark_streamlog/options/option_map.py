"""Options as Spark hands them over: text by names that it does not keep apart by case."""

from collections.abc import Iterable, Mapping
from typing import Final

from streamlog.errors import ConfigError

INTEGER_MAX: Final = 2**63 - 1


class OptionMap:
    """Options whose names have been checked. What raises, raises ConfigError."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def names(self) -> Iterable[str]:
        """In lower case."""
        return sorted(self._options)

    def text(self, name: str) -> str | None:
        value = self._options.get(name.lower())
        if value is not None and not value.strip():
            raise ConfigError(name, "is empty", "set it or remove it")
        return value

    def boolean(self, name: str, *, default: bool) -> bool:
        return self.word(name, ("true", "false"), str(default).lower()) == "true"

    def word(self, name: str, words: tuple[str, ...], default: str) -> str:
        value = (self.text(name) or default).strip().lower()
        if value not in words:
            raise ConfigError(name, f"{value!r} is wrong", f"set {' or '.join(words)}")
        return value

    def integer(self, name: str, default: int, *, least: int = 1, most: int = INTEGER_MAX) -> int:
        value = self.optional_integer(name, least=least, most=most)
        return default if value is None else value

    def optional_integer(self, name: str, *, least: int = 1, most: int = INTEGER_MAX) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            remedy = f"set a whole number from {least} to {most}"
            raise ConfigError(name, f"{text!r} is wrong", remedy)
        return value
