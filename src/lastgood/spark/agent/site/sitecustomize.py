"""Found by every Python below `lastgood run`: waits for pyspark's streaming, then lets the next sitecustomize run.

Any Python may come by, so this file keeps to what Python 2.7 understands; and most have no business with Spark, so it
imports what it needs when it is needed.
"""

# ruff: noqa: INP001, PLC0415, PTH100, PTH118, PTH120, UP004, UP030, UP032 - a folder for sys.path, for Python 2.7 as well
# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_AGENT = "_lastgood_agent"
_STARTING = ("pyspark.sql.streaming.readwriter", "pyspark.sql.connect.streaming.readwriter")


class _Finder(object):
    """Finds the modules that start queries as Python itself would, and has them instrumented when they are loaded."""

    is_lastgood = True

    def find_spec(self, name, path=None, target=None):
        """What `sys.meta_path` asks of a finder."""
        if name not in _STARTING:
            return None
        try:
            return _bring_in("hook").find_instrumented_spec(self, name, path, target)
        except Exception:  # whatever a pyspark that we do not know raises: it is noted down
            _report_trouble()
            if _is_to_wait():
                os._exit(70)  # nothing would hold its queries back
            if os.environ.get("LASTGOOD_REBUILD"):
                raise  # its sink is to be muted
            return None  # the application goes on without us


def _bring_in(part):
    from importlib import import_module
    from types import ModuleType

    if _AGENT not in sys.modules:
        package = ModuleType(_AGENT)
        package.__path__ = [os.path.dirname(_HERE)]
        sys.modules[_AGENT] = package
    return import_module("{0}.{1}".format(_AGENT, part))


def _report_trouble():
    from traceback import print_exc

    try:
        name = os.path.join(os.environ["LASTGOOD_AGENT_DIR"], "{0}.trouble.txt".format(os.getpid()))
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as log:
            print_exc(file=log)
    except (OSError, KeyError):
        pass  # nobody is left to tell


def _is_wanted():
    if sys.version_info < (3, 9) or not os.environ.get("LASTGOOD_AGENT_DIR"):
        return False
    if any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ):
        return False  # a Python worker of Spark, which inherits the environment of its driver
    return not any(getattr(finder, "is_lastgood", False) for finder in sys.meta_path)


def _is_to_wait():
    return os.path.basename(os.environ["LASTGOOD_AGENT_DIR"]).startswith("standby-")  # noqa: PTH119


def _begin_to_wait():
    """A driver that stands by notes down from here on what it is made of."""
    try:
        _bring_in("standby").begin()
    except Exception:  # noqa: BLE001 - it must not go on, whatever it is
        _report_trouble()
        os._exit(70)  # what it has read would not be known


def _run_next():
    """Run the sitecustomize that this one hides, as if we were not there: what it raises is not ours."""
    me = sys.modules.pop(__name__)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    try:
        __import__(__name__)
    except ImportError as error:
        if getattr(error, "name", __name__) != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, me)


if _is_wanted():
    sys.meta_path.insert(0, _Finder())
    if _is_to_wait():
        _begin_to_wait()
_run_next()
