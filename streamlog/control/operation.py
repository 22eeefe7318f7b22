"""What an operation is, to those that ask for one by its name: HTTP, the socket, the command line.

An operation is a method that ``operation`` marks. Its parameters and its result have types, from which the
schema of its JSON is made; the first line of its docstring says what it does. A method that changes something is
an *act*: whatever comes of it is in the audit log, by whichever protocol it was asked for. All operations are counted
and timed. Python code calls the method itself.
"""

import asyncio
import functools
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar, cast, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    create_model,
)

from streamlog.authn.session import Session
from streamlog.authz.permissions import Permissions
from streamlog.clock import clock_s
from streamlog.control.service import ControlService
from streamlog.errors import (
    InvalidRequest,
    NotEnoughReplicasAfterAppend,
    PartlyDone,
    RequestTimedOut,
    StorageFailed,
    StreamlogError,
    StreamNotFound,
)
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.stream_config import StreamConfig, is_hidden

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

UNSURE: Final = (RequestTimedOut, StorageFailed, NotEnoughReplicasAfterAppend, PartlyDone)
"""Errors after which it, or a part of it, may have been done, or may yet be."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and by which protocol."""

    session: Session
    access: Permissions | None = None
    """What the principal may do; None: everything."""
    by: str = "a node"


class Operations:
    """Those of one kind, for one caller."""

    group: ClassVar[str]
    """The attribute of ``Control`` that has them; their names begin with it."""

    def __init__(self, service: ControlService, caller: Caller) -> None:
        self._service = service
        self._caller = caller
        self._access = caller.access
        self._metadata = service.metadata_for(caller.access)

    def _known(self, name: str) -> StreamImage:
        """A stream of the image. What is for nodes alone is not there, nor what is not restored yet; other internal
        streams may be read. Raises StreamNotFound.
        """
        if is_hidden(name):
            raise StreamNotFound(f"{name!r} is an internal stream")
        stream = self._metadata.image.stream(name)
        if stream.config.is_restoring:
            raise StreamNotFound(f"there is no stream {name!r}: it is being restored")
        return stream

    async def _find(self, name: str) -> StreamImage:
        """Raises StreamNotFound, but not for a stream that this node is about to hear of."""
        try:
            return self._known(name)
        except StreamNotFound:
            await self._service.freshness.catch_up()
        return self._known(name)


@dataclass(frozen=True)
class OperationSpec:
    """One operation, as it is asked for by name."""

    group: str
    """The attribute of ``Control`` that has it."""
    method: str
    call: Callable[..., Awaitable[Any]]
    http: str
    """Its method and path, as in ``GET /streams/{name}``."""
    is_act: bool
    about: tuple[str, ...]
    """Parameters that name what it is about, for the audit log."""
    shown: Callable[[Any], Any] | None
    """From what it returns to what is shown as JSON; None: the same."""

    @property
    def name(self) -> str:
        return f"{self.group}.{self.method}"

    @property
    def shows_payloads(self) -> bool:
        """Its result has what messages hold."""
        return self.group == "messages" and not self.is_act

    @property
    def description(self) -> str:
        return inspect.getdoc(self.call) or ""

    @property
    def summary(self) -> str:
        return self.description.partition("\n")[0]

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The model of its JSON arguments. No others are taken."""
        hints = get_type_hints(self.call, include_extras=True)
        fields: dict[str, Any] = {}
        for name, it in inspect.signature(self.call).parameters.items():
            if name != "self":
                default = ... if it.default is inspect.Parameter.empty else it.default
                fields[name] = (hints[name], default)
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
        return create_model(self.name.replace(".", "_"), __config__=config, **fields)

    @cached_property
    def result(self) -> TypeAdapter[Any]:
        """Of what is shown of its result."""
        return TypeAdapter(get_type_hints(self.shown or self.call, include_extras=True)["return"])

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments for the method. Raises InvalidRequest, which names all that are wrong."""
        try:
            model = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidRequest("; ".join(map(_said, error.errors()))) from None
        return {name: getattr(model, name) for name in type(model).model_fields}

    def dump(self, result: Any) -> Any:
        """The result in JSON's types."""
        shown = result if self.shown is None else self.shown(result)
        return self.result.dump_python(shown, mode="json")


def _said(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    return f"{where}: {error['msg']}" if where else str(error["msg"])


_MARK: Final = "__operation__"
DONE: Final = "none"
"""The outcome of an act, or of a part of one, that was done: no error."""
_MAYBE_DONE: Final = frozenset({DONE, *(it.__name__ for it in UNSURE)})


def operation(
    http: str,
    *,
    about: Iterable[str] = (),
    act: bool = False,
    shown: Callable[[Any], Any] | None = None,
    outcomes: Callable[[Any], Iterable[str]] | None = None,
) -> Callable[[F], F]:
    """Marks a method of ``Operations``. Of an act the audit log has what comes of it.

    ``outcomes``: of the result of an act whose parts are done or refused one by one: for each part the name of
    the error, or ``DONE``.
    """

    def mark(method: F) -> F:
        names = tuple(about)
        parameters = tuple(inspect.signature(method).parameters)[1:]

        @functools.wraps(method)
        async def counted(self: Operations, *args: Any, **kwargs: Any) -> Any:
            started_s, error = clock_s(), ""
            try:
                return await method(self, *args, **kwargs)
            except BaseException as raised:
                error = type(raised).__name__
                raise
            finally:
                name = f"{self.group}.{method.__name__}"
                taken_s = clock_s() - started_s
                self._service.metrics.operations.note(name, self._caller.by, error, taken_s)

        @functools.wraps(method)
        async def run(self: Operations, *args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(parameters, args, strict=False)), **kwargs}
            try:
                result = await counted(self, *args, **kwargs)
            except BaseException as error:
                only_failed = isinstance(error, StreamlogError) and not isinstance(error, UNSURE)
                tell(self, given, _outcome(error), is_done=not only_failed)
                raise
            if outcomes is None:
                tell(self, given, DONE, is_done=True)
            else:
                counts = Counter(outcomes(result))
                tell(self, given, counts, is_done=not _MAYBE_DONE.isdisjoint(counts))
            return result

        def tell(
            self: Operations,
            given: Mapping[str, Any],
            outcome: str | Mapping[str, int],
            *,
            is_done: bool,
        ) -> None:
            """A caller that goes away meanwhile does not hide what was done."""
            if given.get("validate_only"):
                return
            caller = self._caller
            self._service.audit.acted(
                caller.session,
                f"{self.group}.{method.__name__}",
                [part for it in names if given.get(it) is not None for part in _parts(given[it])],
                outcome,
                is_done=is_done,
                by=caller.by,
            )

        marked = run if act else counted
        setattr(marked, _MARK, (http, act, names, shown))
        return cast(F, marked)

    return mark


def specs_of(kind: type[Operations]) -> dict[str, OperationSpec]:
    """The operations of a class, by name."""
    found: dict[str, OperationSpec] = {}
    for name, method in vars(kind).items():
        mark = getattr(method, _MARK, None)
        if mark is not None:
            spec = OperationSpec(kind.group, name, method, *mark)
            found[spec.name] = spec
    return found


def _outcome(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "the caller went away; whether it was done is not known"
    # Without its text, which may have values of settings in it; how far an act came has none.
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, PartlyDone) else name


def _parts(value: Any) -> Iterator[str]:
    """However many objects an act names, the audit log has each as a resource of its own."""
    if isinstance(value, tuple) and value and all(map(is_dataclass, value)):
        yield from map(str, value)
    else:
        yield _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, StreamConfig):
        return value.name
    if isinstance(value, SettingChange):
        return value.setting  # no value: it may be a secret
    if isinstance(value, tuple | list):
        return ", ".join(map(_shown, value))
    return str(value)
