"""The Java of a driver, as its command line tells it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from lastgood.frozen import dataclass
from lastgood.values import JsonValue

MAIN = "org.apache.spark.deploy.SparkSubmit"
"""What it runs, whoever has started it."""
_LAUNCHER = "org.apache.spark.launcher.Main"
_DECISIVE = (
    *("--add-", "--enable-native-access", "-Xmx", "-XX:+Use", "-XX:-Use", "-XX:ObjectAlignmentInBytes"),
    *("-XX:+Ignore", "-XX:+Unlock"),
)
_TAKES_NEXT = frozenset(("--add-opens", "--add-exports", "--add-reads", "--add-modules", "--enable-native-access"))
_SHARING = (
    *("-Xshare:", "-XX:SharedArchiveFile", "-XX:AOT", "-XX:ArchiveClassesAtExit", "-XX:+AutoCreateSharedArchive"),
    *("-javaagent:", "-agentpath:", "-Xbootclasspath/a"),
)
"""With these Java goes by another archive, takes no class of Spark from one, or ends where it does not fit."""
_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "JDK_AOT_VM_OPTIONS")
"""By which Java is told options as well."""


@dataclass(frozen=True, slots=True)
class DriverJava(JsonValue):
    """What a class archive of it depends on, and fits."""

    program: str
    home: str
    """Of its Spark."""
    class_path: str
    """As it was given: `*` stands for all jars of a folder."""
    options: tuple[str, ...]
    """Those of Java's own that an archive depends on; no other has anything to do with it."""
    sharing: str | None = None
    """What it was told that has to do with archives; None: nothing."""

    def compute_identity(self) -> str:
        """Short, and another one once Java, Spark or a jar on the class path is another one.

        Raises:
            OSError: one of them cannot be looked at.
        """
        files = [(path, _describe_file(path)) for path in (os.path.realpath(self.program), *self.list_parts())]
        told = json.dumps([self.to_json(), files])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def list_parts(self) -> Iterator[str]:
        """The jars and folders on the class path, those that `*` stands for as well."""
        for part in self.class_path.split(os.pathsep):
            if part.endswith("*"):
                yield from sorted(map(str, Path(part[:-1]).glob("*.[jJ][aA][rR]")))
            else:
                yield part

    def without_archive_of(self, folder: Path) -> DriverJava:
        """The same, as if it had been told of no archive in a folder."""
        if self.sharing is not None and str(folder) in self.sharing:
            return replace(self, sharing=None)
        return self

    def find_relative_part(self) -> str | None:
        """The first part of the class path that is meant from the working folder; None: there is none."""
        return next(itertools.filterfalse(os.path.isabs, self.list_parts()), None)

    def find_doubled_part(self) -> str | None:
        """The first part of the class path that stands there twice; None: there is none."""
        seen: set[str] = set()
        for part in self.list_parts():
            if part in seen:
                return part
            seen.add(part)
        return None

    def find_full_folder(self) -> str | None:
        """The first folder on the class path in which there is anything; None: there is none."""
        return next(filter(_is_full_folder, self.list_parts()), None)


def is_java(process: psutil.Process) -> bool:
    """Whether it is a Java that may do anything: Spark's scripts start one before it, which only tells them how."""
    try:
        return process.name() == "java" and _LAUNCHER not in process.cmdline()
    except psutil.Error:
        return False  # it has ended


def is_driver_java(process: psutil.Process) -> bool:
    """Whether it is the Java of a driver."""
    try:
        return is_java(process) and MAIN in process.cmdline()
    except psutil.Error:
        return False


def find_driver_java(processes: Sequence[psutil.Process]) -> psutil.Process | None:
    """The one Java with a driver among these; None where there are none or several."""
    found = list(filter(is_driver_java, processes))
    return found[0] if len(found) == 1 else None


def read_driver_java(process: psutil.Process) -> DriverJava | None:
    """What it was started as; None if it has ended, or has no class path, or no Spark at a known place."""
    try:
        program, *words = process.cmdline()
        environment = process.environ()
    except (psutil.Error, ValueError):
        return None
    home = environment.get("SPARK_HOME")
    of_java = []
    if MAIN in words:
        of_java = list(_join_values(words[: words.index(MAIN)]))
    if home is None or "-cp" not in of_java[:-1]:
        return None
    class_path = of_java[of_java.index("-cp") + 1]
    told = list(of_java)
    for name in _VARIABLES:
        told += environment.get(name, "").split()
    sharing = next(filter(_is_about_sharing, reversed(told)), None)
    return DriverJava(program, home, class_path, tuple(filter(_is_decisive, of_java)), sharing)


def has_mapped(process: psutil.Process, file: Path) -> bool | None:
    """Whether a file is mapped into the memory of a process; None where the system does not tell."""
    try:
        mapped = Path(f"/proc/{process.pid}/maps").read_bytes()
    except OSError:
        return None
    if not mapped:  # it is just ending
        return None
    return os.fsencode(file) in mapped


def _join_values(words: Iterable[str]) -> Iterator[str]:
    """The same options, each in one word: some take their value as the next one, which Java takes behind `=` too."""
    left = iter(words)
    for word in left:
        if word in _TAKES_NEXT:
            yield f"{word}={next(left, '')}"
        else:
            yield word


def _is_decisive(option: str) -> bool:
    return option.startswith(_DECISIVE)


def _is_about_sharing(option: str) -> bool:
    return option.startswith(_SHARING)


def _is_full_folder(path: str) -> bool:
    return os.path.isdir(path) and bool(os.listdir(path))  # noqa: PTH112, PTH208 - hundreds of them


def _describe_file(path: str) -> tuple[int, int] | None:
    """When it was changed, and how large it is; None: there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - hundreds of them
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_mtime_ns, found.st_size
