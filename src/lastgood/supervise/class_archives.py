"""Spark's classes as Java maps them: made in idle time beside a driver, so that its next start takes less.

What a JVM takes from an archive it decides by its own class path, which only the running driver tells: so the archive
is made of what that was started as, by a small job of its own, and never by the application. A JVM that cannot use it
reads the jars as ever.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import platformdirs
import psutil

import lastgood.spark
from lastgood.errors import LastgoodError
from lastgood.frozen import dataclass
from lastgood.lab.class_archive import KEPT
from lastgood.lab.ports import LOOPBACK
from lastgood.lab.spark import DELTA_CONF, list_settings
from lastgood.notes import read_json
from lastgood.process.child import Child
from lastgood.process.driver import Launch
from lastgood.storage.rights import make_private, open_privately
from lastgood.supervise.driver_java import MAIN, DriverJava, find_driver_java, has_mapped, read_driver_java
from lastgood.supervise.events import Event, Noticed

_DRIVER = "driver.jsa"
_LAUNCHER = "launcher.jsa"
"""Of the small Java that tells Spark's scripts how to start the driver."""
_LAUNCHER_MAIN = "org.apache.spark.launcher.Main"
_QUIET = "-Xlog:cds*=off"
"""A JVM that cannot use an archive says so on its standard output, which Spark's scripts read."""
_LOG = "log"
_JOB_SECONDS = 3600.0
"""On a machine that has no idle time it takes long."""
_AGAIN_SECONDS = 60.0
"""How long after a try that failed the next one; it doubles with each."""
_AGAIN_SECONDS_MAX = 86_400.0
_VARIABLES = frozenset({"HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "USER"})
"""All that the job gets of the application's: what else is there may be secret, or have it do more than it should."""
CLASSES_JOB = Path(lastgood.spark.__file__).parent / "classes_job.py"
"""What class archives are made by."""
_WORK = "work"
_TAKE_DOUBLED_PARTS = (17, 25)
"""Versions of Java that take an archive where a jar is twice on the class path, as Spark 4 has one; 21 does not."""
_LAST = ("sh", "-c", 'echo 1000 2>/dev/null > /proc/self/oom_score_adj; exec nice -n 19 "$@"', "sh")
"""Before a command: where time or memory is short it is the first to go without."""
_CONF = {
    "spark.master": "local[1]",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
_DELTA = "delta-spark_"


class ArchivePlace(Protocol):
    """Keeps the class archive of a command; belongs to the supervisor's thread. Nothing of it stops the command."""

    def begin(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """The environment for the start of the command: with what names the archive, if there is one that fits."""
        ...

    @property
    def is_in_use(self) -> bool:
        """Whether the last start was told of one."""
        ...

    def confirm(self, processes: Sequence[psutil.Process]) -> bool:
        """Whether the command that was started with it has really taken classes from it."""
        ...

    def look(self, processes: Sequence[psutil.Process]) -> None:
        """The command runs as it should: see to it that there is one."""
        ...

    def give_way(self, *, has_moved: bool) -> None:
        """The command has ended: nothing is made beside the next start."""
        ...

    def refuse(self, because: str) -> None:
        """There can be none for this command."""
        ...


@dataclass(frozen=True, slots=True)
class _Job:
    """An archive that is being made."""

    java: DriverJava
    archive: Path
    """The folder that it is to be."""
    draft: Path
    child: Child
    began: float
    is_last: bool = False


class ClassArchives:
    """See `ArchivePlace`."""

    def __init__(self, launch: Launch, *, name: str, tell: Callable[[Event], None], folder: Path | None = None) -> None:
        """Prepare; nothing is looked at yet.

        Args:
            launch: The command, which starts a driver with Python.
            name: Of its pipeline: what its driver was started as is kept by it.
            tell: Gets each event.
            folder: Where archives are kept; None: in the user's cache.
        """
        self._launch = launch
        self._tell = tell
        named = folder or platformdirs.user_cache_path("lastgood") / "driver-classes"
        self._folder = named.resolve()  # as the kernel calls what is mapped from there
        of = json.dumps([name, *launch.command])
        self._seen = self._folder / f"run-{hashlib.sha256(of.encode()).hexdigest()[:16]}.json"
        self._used: Path | None = None
        self._lent: Path | None = None
        """What the last driver that stands by was told of."""
        self._is_passed_over = False
        self._is_refused = False
        self._is_settled = False
        self._job: _Job | None = None
        self._failures = 0
        self._not_before = 0.0

    @property
    def is_in_use(self) -> bool:
        """See `ArchivePlace`."""
        return self._used is not None

    def begin(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """See `ArchivePlace`."""
        is_passed_over, self._is_passed_over = self._is_passed_over, False
        self._is_settled = False
        self._used = None if is_passed_over else self._find()
        return env if self._used is None else name_archive(self._used, env)

    def complete(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """The same for the start of a driver that stands by."""
        self._lent = None if self._is_passed_over else self._find()
        return env if self._lent is None else name_archive(self._lent, env)

    def confirm(self, processes: Sequence[psutil.Process]) -> bool:
        """See `ArchivePlace`."""
        process = find_driver_java(processes)
        if self._used is None or process is None:
            return False
        is_mapped = has_mapped(process, self._used / _DRIVER)
        if is_mapped is False:
            self._notice("CLASS_ARCHIVE_NOT_USED", f"Java did not take Spark's classes from {self._used}")
            java = self._read(process)
            if java is not None and self._locate(java) == self._used:  # else it was started otherwise than before
                self._is_refused = True
                # Safe: of our own cache, and made anew by the next `run`; a JVM that has it open keeps it.
                shutil.rmtree(self._used, ignore_errors=True)
            self._used = None
        return bool(is_mapped)

    def look(self, processes: Sequence[psutil.Process]) -> None:
        """See `ArchivePlace`."""
        if self._job is not None:
            self._go_on(self._job)
            return
        is_needless = self._is_refused or self._is_settled or self._used is not None
        if is_needless or time.monotonic() < self._not_before:
            return
        process = find_driver_java(processes)
        java = None
        if process is not None:
            java = self._read(process)
        if java is None:  # none runs, or nobody knows which
            return
        hindrance = self._find_hindrance(java)
        if hindrance is not None:
            self.refuse(hindrance)
            return
        archive = self._locate(java)
        if not (archive / _DRIVER).exists():
            self._job = self._begin(java, archive)
        else:
            self._note(java, archive, "made before")

    def give_way(self, *, has_moved: bool) -> None:
        """See `ArchivePlace`."""
        # Whatever has ended it: one start without it tells whether the archive has to do with it.
        self._is_passed_over = not has_moved and (self._used or self._lent) is not None
        if self._job is not None:
            self._drop(self._job)
            self._put_off()

    def refuse(self, because: str) -> None:
        """See `ArchivePlace`."""
        if self._job is not None:
            self._drop(self._job)
        if not self._is_refused:
            self._is_refused = True
            self._notice("CLASS_ARCHIVE_IMPOSSIBLE", f"no class archive is made: {because}")

    def close(self) -> None:
        """End what is being made."""
        if self._job is not None:
            self._drop(self._job)

    def _find_hindrance(self, java: DriverJava) -> str | None:
        """Why a driver can have none; None: it can."""
        if os.pathsep in str(self._folder):
            return f"the path of the cache has a {os.pathsep} in it ({self._folder})"
        if java.sharing is not None:
            # No more of it: what an agent is told may be secret.
            return f"the driver's Java is told otherwise ({java.sharing.partition('=')[0]})"
        full = java.find_full_folder()
        if full is not None:
            return f"Java archives classes of jars only, and {full} on the class path is a folder with files"
        relative = java.find_relative_part()
        if relative is not None:
            return f"the class path has a part that is relative to a folder ({relative})"
        return self._find_hindrance_of_version(java)

    def _find_hindrance_of_version(self, java: DriverJava) -> str | None:
        """Why this Java takes none of such a driver; None: it does."""
        if self._launch.java is None or self._launch.java.version in _TAKE_DOUBLED_PARTS:
            return None
        doubled = java.find_doubled_part()
        if doubled is None:
            return None
        return f"Java {self._launch.java.version} takes none where a jar is twice on the class path, as {doubled} is"

    def _read(self, process: psutil.Process) -> DriverJava | None:
        java = read_driver_java(process)
        return None if java is None else java.without_archive_of(self._folder)

    def _locate(self, java: DriverJava) -> Path:
        """Where the archive of a driver is, or is to be."""
        return self._folder / f"run-{java.compute_identity()}"

    def _find(self) -> Path | None:
        """The archive that fits what the driver was last seen to be started as, if all of that is as it was."""
        try:
            java = DriverJava.from_json(read_json(self._seen.read_bytes()))
            archive = self._locate(java)
            if self._is_refused or not (archive / _DRIVER).exists():
                return None
            os.utime(archive)  # those used last are kept
        except (OSError, ValueError):  # nothing was noted, or not by us: the next look notes it
            return None
        return archive

    def _begin(self, java: DriverJava, archive: Path) -> _Job | None:
        draft = self._folder / "draft"
        try:
            make_private(self._folder)
            self._sweep()
            draft = Path(tempfile.mkdtemp(prefix=f"draft-{os.getpid()}-", dir=self._folder))
            (draft / _WORK).mkdir()
            child = self._start(java, draft, make_driver_command(java, draft))
        except (OSError, LastgoodError) as error:
            # Safe: a draft of our own, in which nobody works.
            shutil.rmtree(draft, ignore_errors=True)
            self._fail(str(error))
            return None
        return _Job(java, archive, draft, child, time.monotonic())

    def _start(self, java: DriverJava, draft: Path, command: Sequence[str]) -> Child:
        """A job that has what time of the processor nobody else wants."""
        python = self._launch.python
        assert python is not None  # else there is no place for archives
        env = self._launch.env
        kept = {name: env[name] for name in env.keys() & _VARIABLES}
        of_spark = {"SPARK_HOME": java.home, "SPARK_CONF_DIR": str(draft), "SPARK_LOCAL_IP": LOOPBACK}
        of_python = {"PYSPARK_PYTHON": str(python.program), "PYSPARK_DRIVER_PYTHON": str(python.program)}
        with os.fdopen(open_privately(str(draft / _LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as log:
            return Child([*_LAST, *command], env={**kept, **of_spark, **of_python}, cwd=draft, output=log)

    def _go_on(self, job: _Job) -> None:
        """Look at what is being made."""
        ending = job.child.ending
        took = time.monotonic() - job.began
        if ending is None and took <= _JOB_SECONDS:
            return
        if job.is_last:  # without that of the launcher one start takes a little longer, and no more
            self._finish(job, took)
        elif ending is not None and ending.is_success and (job.draft / _DRIVER).exists():
            child = self._start(job.java, job.draft, make_launcher_command(job.java, job.draft))
            self._job = replace(job, child=child, is_last=True)
        else:
            log = self._folder / _LOG
            with contextlib.suppress(OSError):  # it is of use, and no more
                # Safe: a log of an earlier try that failed.
                (job.draft / _LOG).replace(log)
            self._drop(job)
            self._fail(f"{ending or 'it took too long'}; its output: {log}")

    def _finish(self, job: _Job, took: float) -> None:
        self._job = None
        # Safe: a job of our own, which has ended or takes too long, and has written nothing but its draft.
        job.child.kill()
        # Safe: what the job has written into its own draft, and nobody reads.
        shutil.rmtree(job.draft / _WORK, ignore_errors=True)
        if job.child.ending is None or not job.child.ending.is_success:
            # Safe: as above; it may be cut short.
            (job.draft / _LAUNCHER).unlink(missing_ok=True)
        size = (job.draft / _DRIVER).stat().st_size
        try:
            # Safe: into a name that nobody has; a JVM never sees a part of it.
            job.draft.replace(job.archive)
        except OSError:  # another one has made the same meanwhile
            # Safe: a draft of our own that nobody needs.
            shutil.rmtree(job.draft, ignore_errors=True)
        self._note(job.java, job.archive, f"{size / 1e6:,.0f} MB, made in {took:,.0f} s")
        self._failures = 0

    def _drop(self, job: _Job) -> None:
        self._job = None
        # Safe: a job of our own, which has written nothing but its draft, and the draft goes with it.
        job.child.kill()
        shutil.rmtree(job.draft, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove the drafts of those who have died, and the archives that were used longest ago."""
        for draft in self._folder.glob("draft-*-*"):
            owner = draft.name.split("-")[1]
            if owner.isdigit() and not psutil.pid_exists(int(owner)):
                # Safe: made by a process that is gone, for itself alone.
                shutil.rmtree(draft, ignore_errors=True)
        archives = (each for each in self._folder.glob("run-*") if each.is_dir())
        for old in sorted(archives, key=lambda each: each.stat().st_mtime_ns)[: 1 - KEPT]:
            # Safe: of our own cache, and made anew when it is needed; a JVM that has it open keeps it.
            shutil.rmtree(old, ignore_errors=True)

    def _note(self, java: DriverJava, archive: Path, told: str) -> None:
        """Keep what the driver was started as, and say that an archive fits it."""
        self._is_settled = True
        draft = self._seen.with_suffix(f".{os.getpid()}")
        with os.fdopen(open_privately(str(draft), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as stream:
            json.dump(java.to_json(), stream)
        # Safe: what was noted before holds no longer.
        draft.replace(self._seen)
        self._notice("CLASS_ARCHIVE_MADE", f"the next start takes Spark's classes from an archive ({archive}, {told})")

    def _fail(self, because: str) -> None:
        self._put_off()
        self._notice("CLASS_ARCHIVE_NOT_MADE", f"no class archive was made, so starts take as long as ever: {because}")

    def _put_off(self) -> None:
        self._not_before = time.monotonic() + min(_AGAIN_SECONDS * 2.0**self._failures, _AGAIN_SECONDS_MAX)
        self._failures = min(self._failures + 1, 30)

    def _notice(self, condition: str, sentence: str) -> None:
        self._tell(Noticed(at=time.time(), condition=condition, sentence=sentence))


def name_archive(archive: Path, env: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Spark's scripts tell Java of an archive.

    What a person has set there, or in Spark's own settings, comes later, and counts.
    """
    told = f"{_QUIET} -XX:SharedArchiveFile={shlex.quote(str(archive / _DRIVER))}"
    completed = {**env, "SPARK_SUBMIT_OPTS": f"{told} {env.get('SPARK_SUBMIT_OPTS', '')}".rstrip()}
    launcher = str(archive / _LAUNCHER)
    if os.path.exists(launcher) and not set(launcher) & set(" \t\n*?["):  # noqa: PTH110 - the script takes it apart
        told = f"{_QUIET} -XX:SharedArchiveFile={launcher}"
        completed["SPARK_LAUNCHER_OPTS"] = f"{told} {env.get('SPARK_LAUNCHER_OPTS', '')}".rstrip()
    return completed


def make_driver_command(java: DriverJava, draft: Path) -> list[str]:
    """What has the Java of a driver meet the classes that it will need, and write its archive into a draft."""
    conf = _CONF | {"spark.sql.warehouse.dir": str(draft / _WORK), "spark.local.dir": str(draft / _WORK)}
    if any(_DELTA in part for part in java.list_parts()):
        conf |= DELTA_CONF
    job = (*list_settings(conf), str(CLASSES_JOB), str(draft / _WORK))
    # With the quick compiler alone it takes two thirds of the time.
    of_java = (
        "-XX:TieredStopAtLevel=1",
        f"-Djava.io.tmpdir={draft / _WORK}",
        f"-XX:ArchiveClassesAtExit={draft / _DRIVER}",
    )
    return [java.program, *java.options, *of_java, "-cp", java.class_path, MAIN, *job]


def make_launcher_command(java: DriverJava, draft: Path) -> list[str]:
    """The same for the small Java that Spark's scripts ask how to start the driver."""
    of_java = (f"-XX:ArchiveClassesAtExit={draft / _LAUNCHER}", "-Xmx128m", "-cp", f"{java.home}/jars/*")
    return [java.program, *of_java, _LAUNCHER_MAIN, MAIN, "--conf", "spark.master=local[1]", "pyspark-shell"]
