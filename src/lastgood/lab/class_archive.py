"""Spark's classes as the JVM maps them: made once by a small job, so that each later start takes less time.

How much less, `benchmarks/starting.py` tells. A JVM that cannot use an archive, since it or a jar has changed, says
nothing and reads the jars as ever.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from lastgood.lab.cache import explain_cache_errors, hold_exclusively
from lastgood.lab.spark import JAVA_OPTIONS, SMALL_CONF, SparkEnvironment, find_class_archive, make_small_conf, submit
from lastgood.process.java import Java

KEPT = 6
"""How many stay in the cache, each some 200 MB: those used last, for each belongs to one Spark at one place, and to the
jars that it was started with."""
_JOB_SECONDS = 600.0


def make_class_archive(
    job: Path,
    *,
    environment: SparkEnvironment,
    java: Java,
    jars: Sequence[Path] = (),
    cache: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path | None:
    """The class archive of this Spark with these jars on this Java, made now if it was not made before.

    Args:
        job: A PySpark script that does what is to become faster; its argument is a folder for all that it writes.
        environment: The Spark.
        java: The Java.
        jars: JVM parts for the job, whose classes are archived too.
        cache: Folder to keep it below; else `LASTGOOD_CACHE`, else the user's cache folder.
        progress: Is told, in a few words, what takes time, and what did not work.

    Returns:
        None if this JVM can make none, which is no reason to do without Spark.

    Raises:
        StorageError: the cache cannot be read or written.
    """
    tell = progress or (lambda _: None)
    archive = find_class_archive(environment, java, jars, cache=cache)
    with explain_cache_errors(archive.parent):
        if not archive.exists():
            with hold_exclusively(
                archive.parent / "lock", on_wait=lambda: tell("waiting for another process's class archive")
            ):
                if not archive.exists():
                    tell("archiving Spark's classes, once, so that each start takes less time")
                    if not _make(archive, job, environment, java, jars):
                        tell(
                            f"no class archive was made, so Spark starts as slowly as ever: see {_locate_log(archive)}"
                        )
                        return None
        with contextlib.suppress(FileNotFoundError):  # another Spark's has just taken its place
            os.utime(archive)
    return archive


def _make(archive: Path, job: Path, environment: SparkEnvironment, java: Java, jars: Sequence[Path]) -> bool:
    """Run the job, and give the archive that its JVM writes in the end its name: one cut short would crash a JVM."""
    for abandoned in archive.parent.glob("draft-*"):  # of a process that was killed, since we hold the lock
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="draft-", dir=archive.parent) as name:
        folder, draft = Path(name), Path(name) / archive.name
        writing = f"{SMALL_CONF[JAVA_OPTIONS]} -XX:ArchiveClassesAtExit={shlex.quote(str(draft))}"
        conf = {**make_small_conf(jars, archive=draft), JAVA_OPTIONS: writing}
        start = functools.partial(submit, job, [name], environment=environment, java=java, jars=jars, conf=conf)
        with _locate_log(archive).open("wb") as log, start(cwd=folder, output=log) as child:
            ending = child.wait(_JOB_SECONDS)
        if ending is None or not ending.is_success or not draft.exists():
            return False
        # Safe: of our own cache, whose lock we hold. A JVM that has the old one open keeps it.
        draft.replace(archive)
    by_use = sorted(archive.parent.glob("*.jsa"), key=lambda each: each.stat().st_mtime_ns)
    for old in by_use[:-KEPT]:
        # Safe: of our own cache, and made anew when it is needed; a JVM that has it open keeps it.
        old.unlink()
        _locate_log(old).unlink(missing_ok=True)
    return True


def _locate_log(archive: Path) -> Path:
    return archive.with_suffix(".log")
