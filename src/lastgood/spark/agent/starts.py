"""Every start of a streaming query in this process, told to whoever wants to know, before it and after it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol

_CHECKPOINT = "checkpointlocation"
_CHECKPOINT_ROOT = "spark.sql.streaming.checkpointLocation"
_POSITIONS = ("format", "outputMode", "partitionBy", "queryName")  # after the path or the name of the table
_NO_OPTIONS = {"path", "tableName", *_POSITIONS}
_MARK = f"_watched_by_{__package__}"  # the agent and a Recorder may both be here, under two names
_OPTIONS = "_lastgood_options"
_NAME = "queryName"
_S3 = ("s3", "s3n")
_TELLING: dict[str, Callable[..., dict[str, Any]]] = {
    "option": lambda key, value: {key: value},
    "options": dict,
    "queryName": lambda queryName: {_NAME: queryName},  # noqa: N803 - may be given by name
}


def identify(location: str) -> str:
    """What two spellings of one place have in common."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return os.path.realpath(location)
    if scheme.lower() == "file":
        return os.path.realpath("/" + rest.lstrip("/"))
    scheme = "s3a" if scheme.lower() in _S3 else scheme.lower()
    return f"{scheme}:{rest.rstrip('/')}"


def get_session(writer: Any) -> Any:
    """The session of a DataStreamWriter, classic or of Connect."""
    return getattr(writer, "_spark", None) or writer._session  # noqa: SLF001


def find_path(writer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """What a query writes to, as its `start` was told; the name of a table is none, and neither is what it is not."""
    told = vars(writer).get(_OPTIONS, {})
    found = args[0] if args else kwargs.get("path") or told.get("path")
    return found if isinstance(found, str) and "/" in found and "`" not in found else None


class NotToStartError(Exception):
    """An observer says that a query must not start as it stands: the one thing that the application is told of us."""


class Start:
    """One start of a query, as the application asks for it."""

    def __init__(
        self, writer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], again: Callable[[], Any] = lambda: None
    ) -> None:
        """Take a DataStreamWriter, what its `start` or `toTable` was called with, and what does the same once more."""
        named = {**dict(zip(_POSITIONS, args[1:])), **kwargs}  # noqa: B905 - Python 3.9 has no strict
        told = {**vars(writer).get(_OPTIONS, {}), **{key: value for key, value in named.items() if value is not None}}
        self.writer = writer
        self._options = {key.lower(): value for key, value in told.items() if key not in _NO_OPTIONS}
        self.session = get_session(writer)
        self.query_name: str | None = told.get(_NAME)
        self.again = again
        self.properties: Any = None
        """What its thread had set for its jobs, as Java's Properties; None if nobody has asked."""

    @property
    def checkpoint(self) -> str | None:
        """Where the query checkpoints to, settled as Spark settles it; None for a folder that Spark makes up."""
        chosen = self._options.get(_CHECKPOINT)
        if chosen:
            return str(chosen)
        root = self.session.conf.get(_CHECKPOINT_ROOT, None)
        if root and self.query_name:
            return f"{root}/{self.query_name}"
        return None


class Observer(Protocol):
    """Wants to know of starts. What it raises is its own trouble: the query never sees it."""

    def before_start(self, start: Start) -> None:
        """A query is about to start.

        Raises:
            NotToStartError: it must not.
        """

    def after_start(self, start: Start, query: Any) -> None:
        """The query runs."""

    def start_failed(self, start: Start, error: Exception) -> None:
        """There is no query, since `error` was raised."""

    def report_trouble(self, error: Exception) -> None:
        """One of the methods above has raised `error`."""


_observers: list[Observer] = []
_gates: list[Callable[[Any, Any, str | None], None]] = []


def hold(gate: Callable[[Any, Any, str | None], None]) -> None:
    """Have each start wait until `gate` returns: before anything else is done.

    It gets session and writer, and the path that is written to, if there is one.

    There is one: another one that comes later is not asked. What it raises the application gets.
    """
    if not _gates:
        _gates.append(gate)


def observe(observer: Observer) -> None:
    """Tell `observer` of every start from now on."""
    if observer not in _observers:
        _observers.append(observer)


def forget(observer: Observer) -> None:
    """Tell it no more."""
    if observer in _observers:
        _observers.remove(observer)


def watch(module: ModuleType) -> None:
    """Watch the DataStreamWriter of a module of pyspark, classic or Connect; a second time nothing happens."""
    writer = getattr(module, "DataStreamWriter", None)
    if writer is None or _MARK in vars(writer):
        return
    setattr(writer, _MARK, True)
    for name, options_of in _TELLING.items():
        setattr(writer, name, _wrap_options(getattr(writer, name), options_of))
    for name in ("start", "toTable"):
        setattr(writer, name, _wrap_start(getattr(writer, name)))


def _wrap_options(method: Callable[..., Any], options_of: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """Spark gives options away and never back: keep them with the writer as well."""

    @functools.wraps(method)
    def told(writer: Any, *args: Any, **kwargs: Any) -> Any:
        chained = method(writer, *args, **kwargs)  # first, so that a wrong call fails as it does without us
        vars(writer).setdefault(_OPTIONS, {}).update(options_of(*args, **kwargs))
        return chained

    return told


def _wrap_start(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def start(writer: Any, *args: Any, **kwargs: Any) -> Any:
        for gate in _gates:
            gate(get_session(writer), writer, find_path(writer, args, kwargs))
        observers = list(_observers)
        try:
            begun = Start(writer, args, kwargs, functools.partial(start, writer, *args, **kwargs))
        except Exception:  # noqa: BLE001 - a writer that is none: Spark will say so
            return method(writer, *args, **kwargs)
        try:
            _tell(observers, lambda observer: observer.before_start(begun))
            query = method(writer, *args, **kwargs)
        except Exception as error:
            failure = error  # the name `error` ends with this block, the function below does not
            _tell(observers, lambda observer: observer.start_failed(begun, failure))
            raise
        _tell(observers, lambda observer: observer.after_start(begun, query))
        return query

    return start


def _tell(observers: list[Observer], what: Callable[[Observer], None]) -> None:
    for observer in observers:
        try:
            what(observer)
        except NotToStartError:
            raise
        except Exception as error:  # noqa: BLE001 - the application goes on whatever an observer does
            observer.report_trouble(error)
