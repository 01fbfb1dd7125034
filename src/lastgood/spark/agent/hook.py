"""The import of the modules that start queries: found as ever, instrumented once loaded."""

from __future__ import annotations

import os
import sys
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from . import silent, standby, starts
from .driver import FOLDER_VARIABLE, report_trouble

_busy: set[str] = set()


class _Agent:
    """Comes to life at the first start of a query: a process that only imports pyspark pays nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._agent: starts.Observer | None = None

    def before_start(self, start: starts.Start) -> None:
        with self._lock:
            if self._agent is None:
                from .agent import Agent  # noqa: PLC0415

                self._agent = Agent(Path(os.environ[FOLDER_VARIABLE]))
        self._agent.before_start(start)

    def after_start(self, start: starts.Start, query: Any) -> None:
        if self._agent is not None:
            self._agent.after_start(start, query)

    def start_failed(self, start: starts.Start, error: Exception) -> None:
        if self._agent is not None:
            self._agent.start_failed(start, error)

    def report_trouble(self, error: Exception) -> None:
        if self._agent is not None:
            self._agent.report_trouble(error)
        else:
            report_trouble(error)


_agent = _Agent()


def find_instrumented_spec(asking: object, name: str, path: Any, target: Any) -> ModuleSpec | None:
    """The spec that the other finders have for `name`, with a loader that instruments the module.

    Args:
        asking: Our own finder, which is not asked.
        name: Full name of the module.
        path: Where to look, as `find_spec` of a finder gets it.
        target: The module to reload, likewise.
    """
    if name in _busy:  # another tracer's finder asks the whole path again, us among it
        return None
    _busy.add(name)
    try:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if find is not None and finder is not asking:
                spec: ModuleSpec | None = find(name, path, target)
            else:
                spec = None
            if spec is not None:
                kind = _Loader if hasattr(spec.loader, "exec_module") else _OldLoader
                spec.loader = kind(spec.loader)  # type: ignore[assignment]  # it does what the import system asks
                return spec
        return None
    finally:
        _busy.discard(name)


class _Wrapped:
    """Stands before a loader until the module is loaded; what it does not know, the loader does."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Loader(_Wrapped):
    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _instrument(module)


class _OldLoader(_Wrapped):
    """For loaders from before `exec_module`, such as Python 3.9's for zip files."""

    def load_module(self, name: str) -> ModuleType:
        module: ModuleType = self._loader.load_module(name)
        _instrument(module)
        return module


def _instrument(module: ModuleType) -> None:
    rebuilt = os.environ.get(silent.VARIABLE)
    if rebuilt:
        silent.mute(module, Path(os.environ[FOLDER_VARIABLE]), rebuilt)  # else the application must not go on
        return
    waiting = standby.find_standby_folder()
    try:
        if waiting is not None:
            starts.hold(standby.Gate(waiting))
        starts.observe(_agent)
        starts.watch(module)
    except Exception as error:  # noqa: BLE001 - a pyspark that we do not know: the application goes on without us
        if waiting is not None:
            standby.leave(error)
        report_trouble(error)
