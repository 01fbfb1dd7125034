"""What a waiting driver has been made of: every file that its Python has read since it began."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from importlib.util import source_from_cache
from typing import Any

_OF_THE_KERNEL = ("/proc/", "/sys/")
_COMPILED = ".pyc"
_CONF_OF_FILES = ("spark.jars", "spark.files", "spark.submit.pyFiles", "spark.archives")
Identity = tuple[int, int, int, int, int]
"""Device, inode, size, times of the last change of content and of anything else, in ns: another file, or another
content, has another one."""


def identify_file(path: str) -> Identity | None:
    """The identity of the file at a path, links followed; None if there is none, or something else."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path for each file that Python opens
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class ReadFiles:
    """Notes down the files that this process opens to read, each as it was when it was opened first.

    Python cannot take such a hook away again: `close` has it do nothing.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._found: dict[str, Identity] = {}
        self._is_closed = False

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """What `sys.addaudithook` calls."""
        if self._is_closed or event != "open":
            return
        path, flags = args[0], args[2]
        if isinstance(path, (str, bytes)) and isinstance(flags, int) and flags & os.O_ACCMODE == os.O_RDONLY:
            self.add(os.fsdecode(path))

    def add(self, path: str) -> None:
        """Note a file down that something else reads."""
        if path.endswith(_COMPILED):  # it counts as long as what it was compiled from is the same
            try:
                path = source_from_cache(path)
            except ValueError:
                return
        path = os.path.abspath(path)  # noqa: PTH100 - as above
        if path in self._found or path.startswith(_OF_THE_KERNEL):
            return
        identity = identify_file(path)
        if identity is not None:
            self._found[path] = identity

    def close(self) -> None:
        """Note nothing more down."""
        self._is_closed = True

    def list_kept(self) -> list[tuple[str, Identity]]:
        """Those that are still there: what was removed meanwhile was read for once, as Java's note of its port."""
        for module in list(sys.modules.values()):
            source = getattr(module, "__file__", None)
            if isinstance(source, str):
                self.add(source)  # its compiled form is looked at by its folder alone
        for path in list(self._found):
            if not os.path.exists(path):  # noqa: PTH110
                del self._found[path]
        return list(self._found.items())

    def find_changed(self) -> str | None:
        """The first of those that is another one now; None if there is none."""
        for path, identity in self.list_kept():
            if identify_file(path) != identity:
                return path
        return None


def find_files_of_java(session: Any) -> Iterator[str]:
    """The files of the driver's Java: its class path, what Spark's settings stand in, and what they name.

    Args:
        session: A classic one.
    """
    system = session._jvm.java.lang.System  # noqa: SLF001
    for entry in str(system.getProperty("java.class.path")).split(os.pathsep):
        if os.path.isdir(entry):  # noqa: PTH112
            yield from _list_files(entry)
        else:
            yield entry
    home = os.environ.get("SPARK_HOME")
    conf = os.environ.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))  # noqa: PTH118
    if conf:
        yield from _list_files(conf)
    yield os.path.join(str(system.getProperty("java.home")), "release")  # noqa: PTH118
    for name in _CONF_OF_FILES:
        for each in (session.sparkContext.getConf().get(name, "") or "").split(","):
            path = each.partition("#")[0]
            yield "/" + path[len("file:") :].lstrip("/") if path.startswith("file:") else path


def _list_files(folder: str) -> list[str]:
    try:
        return [each.path for each in os.scandir(folder) if each.is_file()]
    except OSError:
        return []
